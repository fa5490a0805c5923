"""The user's AWS configuration, read as boto3 reads it."""

from pathlib import Path

import pytest

from config.errors import CloudError
from config.target import Target
from infra.pulumi_engine.workspace import inherited_environment
from provision.aws.account import credentials_source, profile_region, resolve_credentials


def test_the_region_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("[profile research]\nregion = eu-north-1\n[default]\noutput = json\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert profile_region("research") == "eu-north-1"
    assert profile_region(None) is None
    with pytest.raises(CloudError) as error:
        profile_region("nobody")
    assert error.value.hint == ("set AWS_PROFILE to one that `aws configure list-profiles` names")


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's files with a profile `research`, and nothing else to find credentials by."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "AWS_CONFIG_FILE").write_text("[profile research]\nregion = eu-north-1\n")
    (tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(
        "[research]\naws_access_key_id = AKIDRESEARCH\naws_secret_access_key = hidden\n"
        "aws_session_token = token\n"
    )
    return tmp_path


def test_boto3_and_the_engine_get_the_same_credentials(profiles: Path) -> None:
    target = Target("aws", "us-east-1", profiles, environment={"AWS_PROFILE": "research"})
    assert credentials_source(target) == "shared-credentials-file"
    whole = resolve_credentials(target)
    assert dict(whole.environment) == {
        "AWS_ACCESS_KEY_ID": "AKIDRESEARCH",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_SESSION_TOKEN": "token",
    }
    assert resolve_credentials(whole) is whole
    assert "hidden" not in repr(whole)


def test_the_user_s_own_variables_cannot_contradict_given_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "of-somebody-else")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    assert "of-somebody-else" not in inherited_environment({"AWS_ACCESS_KEY_ID": "a"}).values()
    assert inherited_environment({})["AWS_PROFILE"] == "of-somebody-else"


def test_no_credentials_anywhere_are_told(profiles: Path) -> None:
    with pytest.raises(CloudError) as error:
        resolve_credentials(Target("aws", "us-east-1", profiles))
    assert (error.value.message, error.value.code) == (
        "no AWS credentials were found",
        "NoCredentials",
    )
