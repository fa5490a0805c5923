"""The backend as the engine is given it."""

from pathlib import Path

import pytest

from config.target import Target
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from infra.stack.workspace import backend_url, folder


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


@pytest.mark.engine
def test_what_a_killed_engine_was_writing_is_removed_with_the_stack(
    tmp_path: Path, engine: Engine
) -> None:
    kept = tmp_path / "pulumi" / ".pulumi"
    torn = "json.bak.18eabbe28120e809.tmp"
    names = (
        f"stacks/gpuctl/demo.{torn}",
        f"history/gpuctl/demo/demo-18eabbe2.history.{torn}",
        f"stacks/gpuctl/demo2.{torn}",
    )
    for name in names:
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).touch()
    Stack("demo", Target("test", "us-east-1", tmp_path), engine).remove()
    assert [name for name in names if (kept / name).exists()] == [names[2]]
    assert not (kept / "history/gpuctl/demo").exists()


@pytest.mark.engine
def test_a_command_writes_no_file_that_the_engine_of_another_one_reads(
    tmp_path: Path, engine: Engine
) -> None:
    target = Target("test", "us-east-1", tmp_path)
    Stack("demo", target, engine).fleet()
    project = folder("demo", target) / "Pulumi.yaml"
    before = (project.read_text(), project.stat())
    Stack("demo", target, engine).fleet()
    assert (project.read_text(), project.stat()) == before
    assert before[0] == "name: gpuctl\nruntime: python\n"
