"""`gpuctl buy`: a capacity block of the region, with the sum that a person agrees to."""

import re

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from config.target import Target
from provision.aws.clients import client
from provision.capacity.offers import BlockSize, ReservedCapacity, capacity
from tests.terminals import lines_on_terminal

pytestmark = pytest.mark.slow

SIZE = ("--nodes", "2", "--days", "2")


@pytest.fixture(autouse=True)
def region(aws: Target, remembered: Target) -> Target:
    """A region for the commands of this process, on a machine without records."""
    return aws


def gpuctl(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def reservations(region: Target) -> tuple[ReservedCapacity, ...]:
    return capacity("p5.48xlarge", BlockSize(), region).reservations


def test_capacity_lists_blocks_with_their_price(region: Target) -> None:
    listed = gpuctl("capacity", "p5.48xlarge", *SIZE)
    assert listed.exit_code == 0, listed.exception
    lines = listed.stdout.splitlines()
    title, head, row, *_, command = lines[lines.index("Nothing is reserved.") + 2 :]
    assert title == "Capacity blocks to buy (--nodes 2 --days 2):"
    assert head.split() == ["ZONE", "HOURS", "FROM", "UNTIL", "NODE", "PER", "HOUR", "SUM"]
    assert re.fullmatch(
        r"us-east-1a +48 +\S+T11:30\+00:00 +\S+T11:30\+00:00 +\$55\.04 +\$5,283\.84", row
    )
    assert command == "Buy the first: `gpuctl buy p5.48xlarge --nodes 2 --days 2`"


def test_capacity_on_a_narrow_terminal_lacks_columns_in_its_order(region: Target) -> None:
    def head(columns: int) -> str:
        lines = lines_on_terminal("capacity", "p5.48xlarge", *SIZE, columns=columns)
        return next(line for line in lines if line.startswith("ZONE") and "SUM" in line)

    assert head(100).split() == ["ZONE", "HOURS", "FROM", "UNTIL", "NODE", "PER", "HOUR", "SUM"]
    assert head(90).split() == ["ZONE", "FROM", "UNTIL", "NODE", "PER", "HOUR", "SUM"]
    assert head(80).split() == ["ZONE", "FROM", "NODE", "PER", "HOUR", "SUM"]


def test_a_script_that_names_the_sum_buys_the_block(region: Target) -> None:
    bought = gpuctl("buy", "p5.48xlarge", *SIZE, "--from", "2030-01-08", "--pay", "5283.84")
    assert bought.exit_code == 0, bought.exception
    assert re.fullmatch(
        r"(cr-\w+) is bought for \$5,283\.84 \(scheduled\): 2 nodes in us-east-1a, from"
        r" 2030-01-08T00:00\+00:00 until 2030-01-10T00:00\+00:00\n"
        r"Write into the cluster file:\n"
        r"  capacity: \{type: capacity-block, id: \1\}\n",
        bought.stdout,
    )
    (block,) = reservations(region)
    assert (block.type, block.total, block.state) == ("capacity-block", 2, "scheduled")
    described = client(region, "ec2").describe_capacity_reservations()["CapacityReservations"]
    owner = "arn:aws:sts::123456789012:user/moto"
    assert [tags["Tags"] for tags in described] == [[{"Key": "gpuctl:owner", "Value": owner}]]


def test_without_a_terminal_nothing_is_bought_unless_the_sum_is_named(region: Target) -> None:
    refused = gpuctl("buy", "p5.48xlarge", *SIZE, "--zone", "us-east-1b")
    assert re.fullmatch(
        r"there is no terminal to ask on: AWS never takes a block back\. Pay \$5,283\.84 now for"
        r" 2 x p5\.48xlarge in us-east-1b, from \S+ until \S+\?; add --pay 5283\.84 if that is what"
        r" you want",
        str(refused.exception),
    )
    assert reservations(region) == ()


def test_another_sum_buys_nothing(region: Target) -> None:
    refused = gpuctl("buy", "p5.48xlarge", *SIZE, "--from", "2030-01-08", "--pay", "5283")
    assert str(refused.exception) == (
        "the block in us-east-1a from 2030-01-08T00:00+00:00 on costs $5,283.84, and you would pay"
        " $5,283.00; pay 5283.84 if that is what you want"
    )
    assert reservations(region) == ()


def test_a_block_that_aws_does_not_offer_is_an_error(region: Target) -> None:
    refused = gpuctl("buy", "p5.48xlarge", *SIZE, "--zone", "us-east-1z", "--pay", "5283.84")
    assert str(refused.exception) == (
        "AWS offers no capacity block of p5.48xlarge with --nodes 2 --days 2 now in us-east-1z; try"
        " fewer nodes, other days or another region"
    )


@pytest.mark.parametrize("command", [("capacity", "p5.48xlarge"), ("buy", "p5.48xlarge")])
def test_a_block_of_so_many_days_does_not_exist(command: tuple[str, ...]) -> None:
    refused = gpuctl(*command, "--days", "15")
    assert str(refused.exception) == (
        "no capacity block has 15 days; 1 to 14 days are possible, and multiples of 7 up to 182"
    )
