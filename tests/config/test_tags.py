"""Tags that IAM, EFS or FSx refuse, and regions that do not exist."""

from pathlib import Path

import pytest

from config.errors import InputError
from config.loading.load import check
from provision.preflight.preflight import check_region

SIGNS = "use letters, digits, spaces and _ . : / = + - @"
CLUSTER = "name: demo\nnodes: 1\ninstance_type: p5.48xlarge\n"


def said(text: str, folder: Path) -> list[str]:
    file = folder / "cluster.yaml"
    file.write_text(CLUSTER + text)
    return [str(one).removeprefix(f"{file}:") for one in check(file)]


@pytest.mark.parametrize(
    ("more", "service"),
    [
        ("network: {access: ssm}\n", "IAM"),
        ("storage: {shared: {type: efs}}\n", "EFS"),
        ("storage: {shared: {type: fsx-lustre, size: 1200}}\n", "FSx"),
    ],
)
@pytest.mark.parametrize(
    ("tag", "column", "message"),
    [
        ('team: "R&D"', 14, "'tags.team' is 'R&D', and {} refuses '&' in a tag"),
        ('team: "a#b"', 14, "'tags.team' is 'a#b', and {} refuses '#' in a tag"),
        ('team: "a\\tb"', 14, "'tags.team' is 'a\\tb', and {} refuses '\\t' in a tag"),
        ('"a,b": x', 8, "the tag's key is 'a,b', and {} refuses ',' in a tag"),
    ],
)
def test_a_tag_that_a_service_refuses_is_named(
    more: str, service: str, tag: str, column: int, message: str, tmp_path: Path
) -> None:
    lines = said(f"{more}tags: {{{tag}}}\n", tmp_path)
    assert f"5:{column}: E203 {message.format(service)}; {SIGNS}" in lines


def test_ec2_alone_takes_every_tag_and_others_take_letters_of_every_language(
    tmp_path: Path,
) -> None:
    assert said('tags: {team: "R&D #1"}\n', tmp_path) == []
    tag = 'tags: {größe: "überall 3+4 = 7 @ x:y/z_-."}\n'
    assert said(f"network: {{access: ssm}}\n{tag}", tmp_path) == []


def test_keys_that_differ_in_case_alone_are_refused_where_iam_gets_them(tmp_path: Path) -> None:
    tags = "tags: {Team: a, team: b, name: c}\n"
    assert said(tags, tmp_path) == []
    assert said(f"storage: {{shared: {{type: efs}}}}\n{tags}", tmp_path) == []
    assert said(f"network: {{access: ssm}}\ninstance_profile: ours\n{tags}", tmp_path) == []
    assert said(f"network: {{access: ssm}}\n{tags}", tmp_path) == [
        "5:17: E203 the tags 'Team' and 'team' differ in case alone, and IAM refuses that;"
        " choose another key",
        "5:26: E203 the tags 'Name' and 'name' differ in case alone, and IAM refuses that;"
        " choose another key",
    ]


@pytest.mark.parametrize("region", ["us-esat-1", "eu-central-9", "us-west-22"])
def test_a_region_that_does_not_exist_is_named_before_any_request(region: str) -> None:
    with pytest.raises(InputError) as refused:
        check_region(region)
    assert str(refused.value).startswith(f"AWS has no region '{region}'; did you mean '")


@pytest.mark.parametrize("region", ["us-east-1", "cn-north-1", "us-gov-west-1"])
def test_regions_of_every_partition_exist(region: str) -> None:
    check_region(region)
