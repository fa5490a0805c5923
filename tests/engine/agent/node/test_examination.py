"""What a node's worker finds out at the end of a job, on this machine as it is."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.agent.node import examination, node_facts
from engine.agent.node.examination import Examination
from engine.contract.head_events import FollowedFailure, RunFinished, RunNode, RunStarted
from engine.contract.names import ERROR_FILE
from engine.contract.worker_events import NodeExamined, NodeFact, Output
from engine.plan.remote_paths import RunPaths
from engine.plan.script import keep_error
from engine.record.result import ResultCollector
from tests.engine.conftest import LocalCluster, make_plan

OPEN = "import os, resource; resource.setrlimit(7, (9, 9)); [os.dup(1) for _ in range(9)]"
FILL = 'import os; os.write(os.open("/dev/full", os.O_WRONLY), b"x")'
ERROR = '{"message": {"message": "ValueError: no key hunter2hunter2\\n at 1", "extraInfo": {}}}'


def kinds(one: Examination) -> set[str]:
    return {fact.kind for fact in one.facts([])}


def test_torchs_error_file_is_the_reason_without_secrets(cluster: LocalCluster) -> None:
    command = (
        "if [ $DSTACK_NODE_RANK = 1 ]; then"
        f" echo '{ERROR}' > $TORCHELASTIC_ERROR_FILE; exit 1; fi; sleep 1000"
    )
    plan = make_plan(commands=(command,), env={"KEY": {"secret": "KEY"}})
    verdict = cluster.execute(plan, {"KEY": "hunter2hunter2"})
    reason = "node1: exited with 1: torch's error file says: ValueError: no key ***"
    assert (verdict.reason, verdict.first_failed_rank, verdict.exit_code) == (reason, 1, 1)
    assert not (cluster.folder / "node1" / ERROR_FILE).exists()
    (seen,) = [event for event in cluster.events() if isinstance(event, NodeExamined)]
    assert (seen.rank, seen.is_own_end, seen.exit_code) == (1, True, 1)


def test_a_node_with_a_cause_is_first_and_the_others_followed(cluster: LocalCluster) -> None:
    """Rank 0 fails because rank 1 does, and its end is known first: rank 1 still has output."""
    first, second = cluster.folder / "rank1", cluster.folder / "rank0"
    # A process is gone when its worker has seen its end.
    command = (
        "if [ $DSTACK_NODE_RANK = 1 ]; then"
        f" echo '{ERROR}' > $TORCHELASTIC_ERROR_FILE; until [ -s {second} ]; do sleep 0.02; done;"
        f" setsid bash -c 'while kill -0 $(cat {second}); do echo; sleep 0.02; done' &"
        f" echo $$ > {first}; exit 3; fi\n"
        f"echo $$ > {second}; until [ -s {first} ]; do sleep 0.02; done\n"
        f"while kill -0 $(cat {first}); do sleep 0.02; done; exit 4"
    )
    verdict = cluster.execute(make_plan(commands=(command,)))
    assert (verdict.first_failed_rank, verdict.exit_code) == (1, 3)
    collector = ResultCollector()
    for event in cluster.events():
        collector.see(event)
    result = collector.result()
    assert result is not None
    assert result.reason.startswith("node1: exited with 3: torch's error file says: Val")
    assert result.followed == (FollowedFailure(nodes=("node0",), text="exited with 4"),)


@pytest.mark.parametrize(
    ("rank", "command", "code", "reason"),
    [
        (0, "exit 3", 3, "node0: exited with 3"),
        (1, "exit 5", 5, "node1: exited with 5"),
        (
            0,
            "kill -SEGV $$",
            139,
            "node0: killed by SIGSEGV (139): it used memory that it does not have",
        ),
        (
            1,
            f"{sys.executable} -c '{FILL}'",
            1,
            "node1: exited with 1: it had no space left:"
            ' "OSError: [Errno 28] No space left on device"',
        ),
    ],
    ids=["master-exits", "worker-exits", "signal", "disk-full"],
)
def test_the_first_failure_is_named(
    cluster: LocalCluster, rank: int, command: str, code: int, reason: str
) -> None:
    job = f"if [ $DSTACK_NODE_RANK = {rank} ]; then {command}; else sleep 1000; fi"
    verdict = cluster.execute(make_plan(commands=(job,)))
    assert (verdict.reason, verdict.exit_code) == (reason, code)
    assert verdict.first_failed_rank == rank


def test_the_last_complaint_in_the_output_is_quoted(cluster: LocalCluster) -> None:
    plan = make_plan(nodes=1, commands=(f"{sys.executable} -c '{OPEN}' || exit 6",))
    reason = cluster.execute(plan).reason
    assert re.fullmatch(
        r"node0: exited with 6: it had no file descriptor left \(`ulimit -n`\):"
        r' "[^"]*Too many open files[^"]*"',
        reason,
    )


def test_a_clock_that_was_set_back_since_the_jobs_start_is_a_fact(tmp_path: Path) -> None:
    steps = [0.0]
    one = Examination(tmp_path, tmp_path, lambda: time.time() + steps[-1])
    assert "clock" not in kinds(one)
    for step, seen in ((-3600, True), (-0.5, False), (3600, False)):
        steps.append(step)
        assert ("clock" in kinds(one)) is seen
    steps.append(-60)
    (fact,) = [fact for fact in one.facts([]) if fact.kind == "clock"]
    assert fact.text == "its clock was set back by 60 s during the run"


def test_full_disks_are_named_once_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk: dict[str, Any] = {"f_frsize": 4096, "f_blocks": 2 << 20, "f_bfree": 9, "f_files": 0}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**disk, f_ffree=0))
    facts = node_facts.disk_facts((tmp_path, tmp_path, tmp_path / "none"), ())
    full = f"the disk of {tmp_path} is full (36.0 KiB of 8.0 GiB are free)"
    assert facts == [NodeFact("disk", full)]
    disk.update(f_bfree=1 << 20, f_files=1000)
    (fact,) = node_facts.disk_facts((tmp_path,), ())
    assert fact.text == f"the disk of {tmp_path} has no inodes left (1000 files)"
    disk.update(f_files=0)
    assert node_facts.disk_facts((tmp_path,), ()) == []


def test_an_examination_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ERROR_FILE).write_text(ERROR)
    hanging = os.pipe()
    monkeypatch.setattr(node_facts, "disk_facts", lambda _: os.read(hanging[0], 1))
    facts = Examination(tmp_path, tmp_path).facts([], most_s=0.5)
    assert "exception" in [fact.kind for fact in facts]
    os.write(hanging[1], b"x")


@pytest.mark.parametrize("written", ["", "{", "[]", '{"message": {}}', '{"message": ""}', "7"])
def test_what_is_no_error_file_says_nothing(tmp_path: Path, written: str) -> None:
    (tmp_path / ERROR_FILE).write_text(written)
    assert node_facts.error_facts(tmp_path / ERROR_FILE) == []


def test_a_core_that_was_written_since_the_start_is_found(tmp_path: Path) -> None:
    old, new = tmp_path / "core.1", tmp_path / "core.2"
    old.touch()
    os.utime(old, (1, 1))
    patterns = tmp_path / "core_pattern"
    patterns.write_text("core.%p\n")
    began = time.time() - 1

    def facts(start: Path = tmp_path) -> list[NodeFact]:
        return node_facts.crash_facts([], start, began, patterns, tmp_path)

    assert facts() == []
    new.touch()
    (fact,) = facts()
    assert fact == NodeFact("core", f"the core of a crashed process is {new}")
    patterns.write_text("%e.core\n")
    assert facts() == []
    patterns.write_text("|/usr/share/apport/apport %p\n")
    assert facts() == []
    patterns.write_text("|/lib/systemd/systemd-coredump %P\n")
    (fact,) = facts(tmp_path / "elsewhere")
    assert fact.text == f"the core of a crashed process is {new}"


def test_a_rank_of_torchrun_keeps_the_first_error(tmp_path: Path) -> None:
    kept, own = tmp_path / "kept", tmp_path / "error.json"
    keep = keep_error(RunPaths("/var/lib/gpuctl/runs", "r-000000"))
    keep = keep.replace("/var/lib/gpuctl/runs/r-000000/torch-error.json", str(kept))
    for written, expected in (("first", "first"), ("second", "first")):
        own.write_text(written)
        environment = os.environ | {"TORCHELASTIC_ERROR_FILE": str(own)}
        subprocess.run(["bash", "-c", keep], env=environment, check=False)
        assert kept.read_text() == expected
    own.unlink()
    done = subprocess.run(["bash", "-c", keep], check=False, capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.parametrize("own", [(), ("own",)])
def test_the_launchers_last_lines_are_shown_of_a_node_that_printed_none(own: tuple[str]) -> None:
    collector = ResultCollector()
    collector.see(
        RunStarted(
            time=1, run_id="r-000000", name="r", cluster="c", startup_order="any", on_stop="keep",
            stop_criteria="all-done",
            nodes=tuple(
                RunNode(rank=n, name=f"n{n}", private_ip="10.0.0.1", role="w") for n in (0, 1)
            ),
        )
    )  # fmt: skip
    for rank, text in ((0, "of mpirun"), *((1, text) for text in own)):
        collector.see(Output(time=2, rank=rank, stream="stdout", text=text))
    collector.see(
        RunFinished(time=3, status="failed", exit_code=137, first_failed_rank=1, reason="")
    )
    result = collector.result()
    assert result is not None
    assert result.last_lines == (own or ("of mpirun",))


@pytest.fixture
def limited() -> Iterator[Path]:
    """A memory control group of 60 MiB below the one of these tests."""
    for mount, name in (("/sys/fs/cgroup/memory", "limit_in_bytes"), ("/sys/fs/cgroup", "max")):
        for own in examination._own_groups():
            group = Path(f"{mount}{own}") / f"gpuctl-words-{os.getpid()}"
            try:
                group.mkdir()
                (group / f"memory.{name}").write_text(str(60 << 20))
            except OSError:  # the other version of cgroups
                continue
            yield group
            group.rmdir()
            return
    pytest.skip("no control group with a memory limit can be made here")


@pytest.mark.lab
def test_a_rank_that_the_kernel_kills_for_memory(cluster: LocalCluster, limited: Path) -> None:
    eat = f"{sys.executable} -c 'bytearray(300 << 20)'"
    command = (
        f"if [ $DSTACK_NODE_RANK = 1 ]; then (echo $BASHPID > {limited}/cgroup.procs; exec {eat})"
        " || exit; fi; sleep 1000"
    )
    verdict = cluster.execute(make_plan(commands=(command,)))
    assert re.fullmatch(
        r"node1: killed by SIGKILL \(137\): the kernel killed python\S* \(pid \d+,"
        r" \d\d\.\d MiB\) because its memory limit was reached",
        verdict.reason,
    )
    assert (verdict.exit_code, verdict.first_failed_rank) == (137, 1)
    last = cluster.events()[-1]
    assert isinstance(last, RunFinished)
    assert last.reason == verdict.reason
