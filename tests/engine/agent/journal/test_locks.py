"""Locks on folders of runs: asked about without taking them, and taken as the folder appears."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.agent.head.queue import Queue
from engine.agent.head.supervisor_unit import start
from engine.agent.journal import run_folders
from engine.agent.journal.locks import is_held
from engine.agent.journal.run_folders import remove_old_runs
from engine.contract.codec import to_json
from engine.contract.names import HEALING, REMOVAL
from engine.contract.plan import RunOrder
from tests.engine.agent.head.test_holding import runs, start_holding  # noqa: F401  a fixture
from tests.engine.agent.head.test_queue import holding
from tests.engine.bare_plans import bare_node, bare_plan

QUESTIONS = 3000


def answers(question: Callable[[], object], times: int = QUESTIONS) -> set[object]:
    """All answers to a question that two processes ask as fast as they can."""
    context = multiprocessing.get_context("fork")
    own = [context.Pipe(duplex=False) for _ in range(2)]

    def ask(to: Any) -> None:
        to.send({question() for _ in range(times)})

    asking = [context.Process(target=ask, args=(to,)) for _, to in own]
    for process in asking:
        process.start()
    heard = {answer for ours, _ in own for answer in ours.recv()}
    for process in asking:
        process.join()
    return heard


def test_a_question_about_a_folder_that_nobody_holds_is_never_answered_wrongly(
    tmp_path: Path,
) -> None:
    assert answers(lambda: is_held(tmp_path)) == {False}


def test_a_question_about_a_folder_that_is_held_is_never_answered_wrongly(tmp_path: Path) -> None:
    with holding(tmp_path / "run"):
        assert answers(lambda: is_held(tmp_path / "run")) == {True}
    assert not is_held(tmp_path / "run")


def test_two_who_ask_which_runs_live_see_no_dead_one(tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "queue").write_text("dead started node0\n")
    queue = Queue(tmp_path)
    assert answers(queue.describe, 500) == {""}
    assert answers(lambda: queue.runs_in_the_way(("node0",)), 200) == {()}


def test_a_client_that_is_refused_keeps_nobody_out_meanwhile(runs: Path) -> None:  # noqa: F811
    """While others keep the cluster from removal, who asks for it must not look like a remover."""
    with holding(runs / "other"):
        (runs / "queue").write_text("other started node0\n")
        refused = [start_holding(runs, REMOVAL) for _ in range(4)]
        assert {answer for _, answer in refused} == {"busy\n"}
        process, answer = start_holding(runs, HEALING)
        assert answer == "held\n"
        refused.append(start_holding(runs, REMOVAL))
        assert refused[-1][1] == "heals\n"
        process.kill()
        process.communicate()
        for other, _ in refused:
            other.communicate()


def test_the_folder_of_a_run_that_starts_is_never_removed(tmp_path: Path) -> None:
    """On a full disk each start removes what it may; a run has no journal yet when it starts."""
    code = (
        "import sys; from pathlib import Path\n"
        "from engine.agent.journal.locks import create_folder\n"
        "for number in range(int(sys.argv[2])):\n"
        "    folder = Path(sys.argv[1]) / f'run-{number}'\n"
        "    create_folder(folder)\n"
        "    (folder / 'rank-0.log').write_text('x')\n"
        "print(flush=True); input()"
    )
    argv = [sys.executable, "-c", code, str(tmp_path), "300"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        ended = threading.Event()

        def remove() -> None:
            while not ended.is_set():
                remove_old_runs(tmp_path / "new", 0)

        remover = threading.Thread(target=remove)
        remover.start()
        assert starter.stdout.readline() == b"\n"
        ended.set()
        remover.join()
        assert len(list(tmp_path.glob("run-*/rank-0.log"))) == 300
        starter.kill()
    remove_old_runs(tmp_path / "new", 0)
    assert list(tmp_path.iterdir()) == []


def test_a_start_holds_the_runs_folder_until_its_unit_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other runs that start meanwhile remove old folders without a journal."""
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    folder = tmp_path / "runs" / "job-000001"
    seen = []

    def start_unit(own: Path, program: str, grace_s: int) -> int:
        remove_old_runs(own.parent / "other", 0)
        seen.append(sorted(path.name for path in own.iterdir())[0])
        return 0

    monkeypatch.setattr("engine.agent.head.supervisor_unit.start_unit", start_unit)
    read, write = os.pipe()
    order = RunOrder(bare_plan([bare_node(0)]), {})
    os.write(write, json.dumps(to_json(order)).encode())
    os.close(write)
    with os.fdopen(read) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert start(folder) == 0
    assert seen == ["agent.pyz"]


def test_a_folder_with_a_run_that_may_come_back_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor was killed before it wrote a journal; systemd starts the next one."""
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    killed = tmp_path / "runs" / "killed"
    killed.mkdir(parents=True)
    run_folders.mark_used(killed)
    (killed / "rank-0.log").write_text("x")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "killed.json").touch()
    remove_old_runs(tmp_path / "runs" / "new", 0)
    assert killed.exists()
    (tmp_path / "memory" / "killed.json").unlink()
    remove_old_runs(tmp_path / "runs" / "new", 0)
    assert not killed.exists()
