"""Questions, prices, the way of the steps, and what is printed if something remains."""

import json
import subprocess
from pathlib import Path

import pytest

from config.cluster.resolved import CLUSTER_TAG
from config.loading.load import load_cluster, load_run
from config.target import Target
from engine.record.result import Table
from lab.places import Places
from provision.aws.clients import client
from smoke import rent
from smoke.ladder import Ladder, question
from smoke.ladder_record import LadderRecord, StepPrice
from smoke.rent import Remains, remove, table_lines
from smoke.steps import STEPS, StepActions
from smoke.workplace import StepFailed, Workplace
from tests.docs.pages import HOME


def test_what_a_step_costs_is_printed_before_it() -> None:
    price = StepPrice(
        usd_h=43.99, about_usd=29.327, most_usd=87.98, source="AWS's price list of today"
    )
    assert question(price) == (
        "It costs about $29.33: 40 minutes at $43.99 per hour (AWS's price list of today), and at"
        " most $87.98 if its nodes are not removed before lifetime.max. It leaves nothing behind."
    )
    unknown = StepPrice(
        usd_h=None, about_usd=None, most_usd=None, source="AWS's price list of today"
    )
    assert question(unknown) == (
        "Its price is not known: AWS's price list of today has none. It leaves nothing behind."
    )
    assert question(None) == "It costs nothing, and creates nothing."


def test_without_a_terminal_the_last_step_must_be_named() -> None:
    done = subprocess.run(
        ["scripts/aws-smoke", "--from", "3", "--yes-up-to", "2"],
        cwd=HOME, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "aws-smoke: error: no terminal can answer the questions; name the last step that you agree"
        " to, such as --yes-up-to 3\n"
    )


def test_a_step_that_nobody_agrees_to_is_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "aws-smoke.json"
    assert Ladder(Workplace(None, tmp_path), 2, 1, record, LadderRecord()).climb() == 0
    assert capsys.readouterr().out == (
        "\nStep 2 of 6: preview of what the later steps rent\n"
        "It costs nothing, and creates nothing.\n"
        "aws-smoke: stopped before step 2; go on with: scripts/aws-smoke --from 2\n"
    )
    assert not record.exists()


def test_the_files_of_the_steps_are_valid_also_as_the_lab_runs_them(tmp_path: Path) -> None:
    for lab in (None, Places("x")):
        steps = StepActions(Workplace(lab, tmp_path))
        for step in (step for step in STEPS if step.rent):
            assert step.rent
            cluster = load_cluster(Path("stacks") / step.rent.cluster)
            assert cluster.budget and cluster.lifetime and cluster.nodes == 2
            for name in step.rent.runs:
                run = load_run(steps.run_file(name))
                expected = "warn" if lab and run.type == "nccl-tests" else None
                assert run.verify == expected or lab is None
                assert run.max_duration


class _Planning(Workplace):
    """A site whose `gpuctl plan` refuses the p4d."""

    def read(self, *words: str, quiet: bool = False) -> str:
        assert (words[0], words[2:], quiet) == ("plan", ("--json",), True)
        if "p4d" in words[1]:
            raise StepFailed("`gpuctl plan` ended with exit code 2: vCPUs: too few", "")
        plan = {"instance_type": "t3.small", "zone": "us-east-1a", "counts": {"create": 17}}
        return json.dumps(plan | {"warnings": ["a warning"]})


def test_a_refused_plan_stops_its_own_step_alone(tmp_path: Path, target: Target) -> None:
    site = _Planning(None, tmp_path)
    site.__dict__["target"] = target
    StepActions(site).take(STEPS[1])
    assert [note for note in site.notes if "cheapest" not in note] == [
        "step 3: 2 x t3.small in us-east-1a, 17 resources to create",
        "step 3: warning: a warning",
        "step 4: 2 x t3.small in us-east-1a, 17 resources to create",
        "step 4: warning: a warning",
        "step 5: 2 x t3.small in us-east-1a, 17 resources to create",
        "step 5: warning: a warning",
        "step 6 is refused: `gpuctl plan` ended with exit code 2: vCPUs: too few",
    ]


class _Removal(Workplace):
    """A site whose `gpuctl down` ends with exit code 1."""

    def run(self, *words: str, codes: tuple[int, ...] = (0,)) -> int:
        assert words == ("down", "smoke", "--yes")
        assert 1 in codes
        return 1


def test_what_remains_is_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = ("instance i-1", "volume vol-1")
    monkeypatch.setattr(rent, "left_behind", lambda *_: left)
    site = _Removal(Places("x"), tmp_path)
    site.__dict__["target"] = None  # nothing is asked of it
    with pytest.raises(Remains) as caught:
        remove(site, "smoke")
    assert caught.value.left == left
    assert str(caught.value) == (
        "of cluster smoke there remain instance i-1, volume vol-1, which may cost money;"
        " run `gpuctl --lab-name x down smoke`"
    )

    def refuse(*_: object) -> None:
        raise StepFailed("AWS cannot be reached", "")

    monkeypatch.setattr(rent, "left_behind", refuse)
    with pytest.raises(Remains) as unknown:
        remove(site, "smoke")
    assert str(unknown.value) == (
        "whether anything of cluster smoke is left is not known: AWS cannot be reached;"
        " run `gpuctl --lab-name x down smoke` until it says that the cluster is gone"
    )


def test_a_cluster_that_exists_already_is_not_touched(tmp_path: Path, empty_region: Target) -> None:
    ec2 = client(empty_region, "ec2")
    vpc = str(ec2.create_vpc(CidrBlock="10.213.0.0/16")["Vpc"]["VpcId"])
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": CLUSTER_TAG, "Value": "smoke"}])
    site = Workplace(None, tmp_path)
    site.__dict__["target"] = empty_region
    with pytest.raises(StepFailed) as caught:
        rent.use(site, Path("stacks/smoke-2x-cpu.yaml"), [])
    assert str(caught.value) == (
        "1 resources have the tag of a cluster smoke already: VPC"
        f" {vpc}, …; if it is yours, run `gpuctl down smoke` first"
    )
    assert site.commands == []
    assert len(ec2.describe_vpcs()["Vpcs"]) == 1


def test_a_table_becomes_its_largest_bandwidth_and_its_gates() -> None:
    table = Table.model_validate(
        {
            "facts": {
                "rank": 0, "collective": "all_reduce",
                "gates": [{"passed": False, "text": "gate missed: all_reduce 2 GiB"}],
            },
            "rows": [
                {"size": size, "count": 1, "dtype": "float", "redop": "sum", "root": -1,
                 "out_of_place": {"time_us": 1.0, "algbw": 1.0, "busbw": busbw, "wrong": 0},
                 "in_place": None}
                for size, busbw in ((1024, 1.5), (2048, 61.2))
            ],
        }
    )  # fmt: skip
    assert list(table_lines(table)) == [
        "all_reduce: busbw 61.2 GB/s at 2048 bytes",
        "gate missed: all_reduce 2 GiB",
    ]
