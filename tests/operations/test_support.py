"""`gpuctl support`: what is packed to ask for help, and what never is."""

import json
import logging
import tarfile
from pathlib import Path

import pytest

from cli.command_log import start
from config.errors import InputError
from config.target import Target
from operations import runs
from operations.support import pack_support
from tests.operations.test_runs import HERE, ready


def packed(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            member.name.removeprefix("gpuctl-support/"): file.read().decode()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }


def test_archive_has_what_helps_and_no_secret_and_no_output(
    cluster: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    ended = runs.follow(HERE, ready(tmp_path, "echo printed; exit 3"), on_event=lambda _: None)
    start("up", ["up", "demo.yaml"], "info")
    logging.getLogger("gpuctl").warning("it has hunter2-hunter2")
    to = tmp_path / "support.tar.gz"
    names = pack_support(HERE, to, runs=("job",))
    files = packed(to)
    run = ended.result.run_id
    assert tuple(files) == names
    assert {f"runs/{run}.jsonl", "about.json", "clusters/demo/cluster.json"} <= files.keys()
    events = [json.loads(line)["kind"] for line in files[f"runs/{run}.jsonl"].splitlines()]
    assert (events[0], events[-1]) == ("run_started", "run_finished")
    assert {"node_exited", "output"} & {*events} == {"node_exited"}
    (log,) = (text for name, text in files.items() if name.startswith("logs/"))
    assert log.startswith("gpuctl up demo.yaml\n")
    assert "it has ***" in log
    assert not [text for text in files.values() if "hunter2" in text or "printed\n" in text]
    about = json.loads(files["about.json"])
    assert about["packages"]["pulumi-aws"]
    assert "Pulumi's engine" in {check["name"] for check in about["checks"]}


def test_run_that_nobody_knows_is_an_error_and_leaves_no_file(
    cluster: Target, tmp_path: Path
) -> None:
    with pytest.raises(InputError):
        pack_support(HERE, tmp_path / "to.tar.gz", runs=("nothing",))
    assert not (tmp_path / "to.tar.gz").exists()


def test_file_that_cannot_be_written_is_named(cluster: Target, tmp_path: Path) -> None:
    to = tmp_path / "none" / "to.tar.gz"
    with pytest.raises(InputError) as caught:
        pack_support(HERE, to)
    assert str(caught.value) == (
        f"{to} cannot be written: No such file or directory; name another file"
    )
