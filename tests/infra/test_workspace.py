"""The backend as the engine is given it."""

from pathlib import Path

import pytest

from config.target import Target
from infra.pulumi_engine.installation import VERSION, Engine
from infra.pulumi_engine.workspace import backend_url, workspace


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (None, "file:///state/pulumi?metadata=skip"),
        ("file:///elsewhere", "file:///elsewhere?metadata=skip"),
        ("file:///elsewhere?no_tmp_dir=true", "file:///elsewhere?no_tmp_dir=true"),
        ("s3://bucket/states?region=eu-west-1", "s3://bucket/states?region=eu-west-1"),
    ],
)
def test_a_folder_is_used_without_attribute_files(asked: str | None, given: str) -> None:
    target = Target("aws", "eu-west-1", Path("/state"), backend=asked)
    assert backend_url(target) == given


@pytest.mark.parametrize(("provider", "percent"), [("127.0.0.1:4000", "400"), (None, None)])
def test_go_collects_less_garbage_where_the_engine_starts_no_provider(
    tmp_path: Path, provider: str | None, percent: str | None
) -> None:
    target = Target("aws", "eu-west-1", tmp_path, provider_address=provider)
    engine = Engine(Path("pulumi"), VERSION, "path")
    assert workspace("demo", target, engine).env_vars.get("GOGC") == percent
