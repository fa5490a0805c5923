"""The user's settings: where each value comes from, and what is wrong with a file."""

import subprocess
import sys
from pathlib import Path

import pytest

from config.errors import InputError, InvalidFiles
from config.folders import state_home
from config.settings import VARIABLES, export_state, settings

WHOLE = """\
profile: work
region: eu-west-1
lifetime: 8h
owner: research
profiles:
  work:
    aws_profile: research
    region: eu-central-1
  night: {region: us-west-2, check_permissions: false}
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the settings' file in a home without any, and no variable."""
    for names in (*VARIABLES.values(), ("GPUCTL_PROFILE", "AWS_ACCESS_KEY_ID")):
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / ".config" / "gpuctl" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


def of(name: str, **flags: str | None) -> tuple[object, str]:
    found = settings(flags)[name]
    return found.value, found.source


def test_without_a_file_everything_is_the_default(tmp_path: Path) -> None:
    assert {one.name: one.value for one in settings().values()} == {
        "aws_profile": None,
        "backend": None,
        "check_permissions": True,
        "gc_regions": None,
        "lifetime": None,
        "owner": None,
        "pulumi": None,
        "region": None,
        "state": str(tmp_path / "state" / "gpuctl"),
    }


def test_a_flag_a_variable_the_profile_the_file_in_this_order(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(WHOLE)
    place = "~/.config/gpuctl/config.yaml"
    assert of("region") == ("eu-central-1", f"profile work ({place}:8)")
    assert of("lifetime") == (8 * 3600, f"{place}:3")
    assert of("owner") == ("research", f"{place}:4")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-2")
    assert of("region") == ("us-east-2", "$AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert of("region") == ("us-east-1", "$AWS_REGION")
    monkeypatch.setenv("GPUCTL_REGION", "ap-south-1")
    assert of("region") == ("ap-south-1", "$GPUCTL_REGION")
    assert of("region", region="sa-east-1") == ("sa-east-1", "--region")
    assert of("region", region=None) == ("ap-south-1", "$GPUCTL_REGION")


def test_a_variable_chooses_the_profile(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(WHOLE)
    monkeypatch.setenv("GPUCTL_PROFILE", "night")
    place = "~/.config/gpuctl/config.yaml"
    assert of("region") == ("us-west-2", f"profile night ({place}:9)")
    assert of("check_permissions") == (False, f"profile night ({place}:9)")
    assert of("aws_profile") == (None, "boto3's default profile")
    monkeypatch.setenv("GPUCTL_CHECK_PERMISSIONS", "true")
    assert of("check_permissions") == (True, "$GPUCTL_CHECK_PERMISSIONS")


def test_keys_in_the_environment_are_not_overridden_by_a_profile_of_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(WHOLE)
    assert of("aws_profile")[0] == "research"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    assert of("aws_profile") == (None, "$AWS_ACCESS_KEY_ID has the keys")
    assert of("aws_profile", aws_profile="other") == ("other", "--profile")


def test_the_folder_for_state_reaches_all_parts_and_children(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_state()
    assert state_home() == tmp_path / "state" / "gpuctl"
    file.write_text("state: ~/clusters\n")
    monkeypatch.setenv("GPUCTL_STATE", str(tmp_path / "mine"))
    export_state()
    assert state_home() == tmp_path / "mine"
    assert of("state") == (str(tmp_path / "mine"), "$GPUCTL_STATE")
    monkeypatch.setenv("GPUCTL_STATE", "")
    export_state()
    assert state_home() == tmp_path / "clusters"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("regoin: us-east-1\n", "1:1: E101 unknown key 'regoin'; did you mean 'region'?"),
        ("lifetime: 8\n", "1:11: E203 'lifetime' is the number 8, which is no duration; write a"
         " whole number (at most 6 digits) and a unit: s, m, h or d (30m, 8h)"),
        ("pulumi: 3\n", "1:9: E103 'pulumi' is the number 3, must be text; quote it: '3'"),
        ("region: moon\n", "1:9: E203 'region' is 'moon'; write an AWS region such as us-east-1"),
        ("profiles:\n  work:\n    state: 3\n",
         "3:12: E103 'profiles.work.state' is the number 3, must be text; quote it: '3'"),
        ("profile: wrk\nprofiles:\n  work: {}\n",
         "1:10: E201 'wrk' is no profile of this file; did you mean 'work'?"),
        ("profile: work\n", "1:10: E201 'work' is no profile of this file; there are no profiles"),
        ("- region\n", "1:1: E105 the file is not a mapping; write keys and values: region: …"),
        ("region: [a\n", "2:1: E001 "),
    ],
)  # fmt: skip
def test_a_wrong_file_is_reported_with_line_and_column(text: str, line: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(InvalidFiles) as caught:
        settings()
    assert str(caught.value).startswith(f"{file}:{line}")


def test_a_file_without_settings(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert of("region")[0] is None


def test_wrong_variables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def complaint() -> str:
        with pytest.raises(InputError) as caught:
            settings()
        return str(caught.value)

    monkeypatch.setenv("GPUCTL_PROFILE", "work")
    assert complaint() == (
        "GPUCTL_PROFILE is 'work', but ~/.config/gpuctl/config.yaml does not exist; create it, or"
        " unset the variable"
    )
    file.write_text("profiles: {day: {}, night: {}}\n")
    assert complaint() == (
        "GPUCTL_PROFILE is 'work', which is no profile of ~/.config/gpuctl/config.yaml; it has day,"
        " night"
    )
    monkeypatch.delenv("GPUCTL_PROFILE")
    monkeypatch.setenv("GPUCTL_LIFETIME", "8")
    assert complaint() == (
        "GPUCTL_LIFETIME: 'lifetime' is '8', which is no duration; write a whole number (at most 6"
        " digits) and a unit: s, m, h or d (30m, 8h)"
    )
    monkeypatch.delenv("GPUCTL_LIFETIME")
    monkeypatch.setenv("GPUCTL_CHECK_PERMISSIONS", "maybe")
    assert complaint().startswith("GPUCTL_CHECK_PERMISSIONS: 'check_permissions' is 'maybe'")


def test_values_without_mistakes_import_no_models_of_other_files(file: Path) -> None:
    """Every command reads the settings."""
    file.write_text(WHOLE)
    program = (
        "import sys, cli; from config.settings import settings; settings()\n"
        "print([name for name in ('config.run', 'formats.dstack') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
