"""The user's AWS configuration, read as boto3 reads it."""

from pathlib import Path

import pytest

from config.errors import CloudError
from provision.account import profile_region


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
