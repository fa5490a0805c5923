"""`gpuctl run --detach`, `attach` and `wait`, and Ctrl-C: real agents, nodes are this machine."""

import asyncio
import json
import os
import pty
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app, main
from cli.output import Output
from cli.render.followed_run import show_detached
from config.errors import InputError, NodeError, RunError
from config.target import Target
from engine.contract.event import Event
from engine.contract.worker_events import Output as Printed
from engine.record.history import History
from engine.session import session
from engine.session.following import Limits
from nodes.answers import Completed
from nodes.inventory import Node
from operations.chosen_target import ChosenTarget
from operations.lost_head import power_off_hint
from operations.past_run import late_outputs
from operations.runs import _first_event, follow_journal
from tests.aws_calls import Answer, ApiCall
from tests.cli.conftest import is_removed, remember
from tests.cli.test_run import (
    cluster,  # noqa: F401  fixtures are found by import
    gpuctl_run,  # noqa: F401
    rented,  # noqa: F401
)
from tests.connections import Connect, WithoutSsh
from tests.engine.conftest import make_inventory, make_plan
from tests.engine.session.test_session import INVENTORY, LocalConnections, connections  # noqa: F401

Call = Callable[..., Result]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cluster")]


def gpuctl(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


class Client:
    """gpuctl in a process that a test interrupts and kills, with a terminal if `stdin` is one."""

    def __init__(self, process: BaseProcess, output: int) -> None:
        self.process = process
        self._output = os.fdopen(output, "r", encoding="utf-8", newline="")
        self.text = ""

    def read_until(self, text: str) -> None:
        while text not in self.text:
            more = self._output.read(1)
            assert more, f"no {text!r} in:\n{self.text}"
            self.text += more

    def interrupt(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        self.text += self._output.read()
        self.process.join(60)
        assert self.process.exitcode is not None
        return self.process.exitcode

    def close(self) -> None:
        self.process.kill()
        self.process.join(60)
        self._output.close()


def be_a_client(words: list[str], stdin: int, output: int) -> None:
    """Become `gpuctl WORDS`; the fixtures of the test hold in this process too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, descriptor in enumerate((stdin, output, output)):
        os.dup2(descriptor, place)
    os.close(output)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = ["gpuctl", *words]
    main()


@contextmanager
def client(*words: str, stdin: int | None = None) -> Iterator[Client]:
    """Run gpuctl in a process of its own, a copy of this one."""
    mine, its = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    given = nothing if stdin is None else stdin
    process = get_context("fork").Process(target=be_a_client, args=(list(words), given, its))
    process.start()
    os.close(its)
    os.close(nothing)
    it = Client(process, mine)
    try:
        yield it
    finally:
        it.close()


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal: the end of the person who types, and the program's end."""
    ends = pty.openpty()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@pytest.fixture
def detached(gpuctl_run: Call) -> Callable[..., str]:  # noqa: F811
    """Start a run of these commands, detached; return its id."""

    def start(command: str, **fields: object) -> str:
        file = {"type": "task", "name": "job", "nodes": 2, "commands": [command], **fields}
        done = gpuctl_run(json.dumps(file), "--detach", "--json")
        assert (done.exit_code, done.exception) in ((0, None), (0, done.exception)), done.output
        run_id: str = json.loads(done.stdout)["run_id"]
        return run_id

    return start


def test_detach_names_the_run_and_the_commands_that_follow(
    cluster: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
) -> None:
    text = (
        "type: task\nname: job\nnodes: 2\ncommands: [sleep 1000]\noutputs: [out/]\nports: [8888]\n"
    )
    done = gpuctl_run(text, "--detach")
    assert done.exit_code == 0, done.output
    with History(cluster.runs) as history:
        name = history.find("job").run_id
    assert done.stdout.splitlines() == [
        f"Run {name} goes on on cluster demo without this client.",
        f"  follow it to its end:  gpuctl attach {name}",
        f"  wait for its end:      gpuctl wait {name}",
        f"  stop it:               gpuctl stop {name}",
        "Its outputs (out/) come back with attach.",
        "With attach its ports (8888) are forwarded.",
    ]
    assert done.stderr == ""
    wrong = gpuctl("stop", name, "--grace", "soon").exception
    assert isinstance(wrong, InputError)
    assert wrong.message == (
        "--grace is 'soon': it must be a whole number (at most 6 digits) and a unit: s, m, h or d"
        " (30m, 8h)"
    )
    stopped = gpuctl("stop", name, "--grace", "1s")
    assert stopped.exit_code == 0
    assert f"{name} is stopped in 1s; its job has notice" in stopped.output


def test_who_detaches_from_a_run_that_ends_its_cluster_hears_what_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = make_plan(on_stop="destroy")
    show_detached(ChosenTarget(), plan, Output())
    assert capsys.readouterr().out.splitlines()[4:] == [
        "If no client is attached at its end, the nodes power off a minute later;"
        " `gpuctl down demo` removes the rest.",
        "Its log and metrics are lost then if no client has fetched them.",
    ]


def test_who_detaches_from_a_run_with_shared_storage_hears_where_its_results_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = replace(make_plan(on_stop="destroy"), saved="/s/gpuctl/saved/job-000001")
    show_detached(ChosenTarget(), plan, Output())
    assert capsys.readouterr().out.splitlines()[4:] == [
        "If no client is attached at its end, the nodes power off a minute later;"
        " `gpuctl down demo` removes the rest.",
        "Its log and metrics are copied to /s/gpuctl/saved/job-000001 before.",
        "Later `gpuctl up FILE` and `gpuctl attach job-000001` get them,"
        " `gpuctl down demo` deletes them.",
    ]


class Silent(WithoutSsh):
    async def run(self, node: Node, *_: object, **__: object) -> Completed:
        raise NodeError(f"{node.name} does not answer", "")

    @asynccontextmanager
    async def converse(self, node: Node, _: str) -> AsyncIterator[None]:
        await self.run(node)
        yield


@pytest.mark.parametrize(
    ("shared", "then"),
    [
        ("", ": `gpuctl down demo` removes the rest"),
        (
            "/s",
            ", and have left its log, metrics and outputs in /s/gpuctl/saved/job-000001:"
            " `gpuctl up FILE` and `gpuctl attach job-000001` get them,"
            " `gpuctl down demo` deletes them",
        ),
    ],
)
def test_who_attaches_to_a_head_that_powered_off_hears_what_is_left(
    shared: str, then: str, tmp_path: Path, reach_nodes: Callable[[Connect], None]
) -> None:
    reach_nodes(lambda _: Silent())
    plan = make_plan(on_stop="destroy")
    with History(tmp_path) as history:
        history.begin(plan)
        entry = history.find(plan.run_id)
    there = make_inventory(2).model_copy(update={"shared": shared})
    with pytest.raises(NodeError) as error:
        _first_event(ChosenTarget(), entry, there)
    assert error.value.hint == f"if the run is over, its nodes have powered off{then}"


@pytest.mark.parametrize("saved", ["", "/s/gpuctl/saved/job-000001"])
def test_outputs_that_do_not_come_back_later_may_be_in_the_shared_storage(
    saved: str,
    cluster: Target,  # noqa: F811
    reach_nodes: Callable[[Connect], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = remember(make_inventory(2).model_copy(update={"shared": "/s"}), cluster)
    reach_nodes(lambda _: Silent())
    plan = replace(make_plan(on_stop="destroy", outputs=("out/",)), saved=saved)
    started: Any = plan  # it has what is read of a first event
    monkeypatch.chdir(tmp_path)
    for part in (False, True):
        if part:
            (tmp_path / "outputs/job-000001/rank-1.part").mkdir(parents=True)
        assert late_outputs(ChosenTarget(), started, Output().progress()) is None
        shown = capsys.readouterr()
        assert shown.out == (f"-- {power_off_hint('job-000001', there)}\n" if saved else "")
        kept = f"gpuctl: warning: a part of the outputs is in {tmp_path}/outputs/job-000001\n"
        missing = "".join(
            f"gpuctl: warning: outputs did not come back: {node} does not answer\n"
            for node in ("node0", "node1")
        )
        assert shown.err == (kept if part else "") + missing


def test_detached_attached_killed_and_attached_again_every_line_is_there_once(
    detached: Callable[..., str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    name = detached(f"seq 1 400; until test -e {go}; do sleep 0.1; done; seq 401 800")
    with client("attach", name) as first:
        first.read_until("[node1] 250\n")
        first.process.kill()
    with client("attach", name) as second:
        second.read_until("[node0] 400\n")
        go.touch()
        assert second.end() == 0, second.text
    wanted = Counter(f"[node{rank}] {n}" for rank in (0, 1) for n in range(1, 801))
    for text in (second.text, gpuctl("logs", name).stdout, gpuctl("attach", name).stdout):
        assert Counter(line for line in text.splitlines() if line.startswith("[")) == wanted
    verdict, cost, goes_on, following = second.text.splitlines()[-4:]
    assert re.fullmatch(r"The run has cost about \$\d+\.\d\d at list price\.", cost)
    assert verdict.startswith(f"Run {name}: done in ")
    assert (
        goes_on
        == "Cluster demo goes on, and its nodes cost $43.92 per hour: `gpuctl down demo` removes it"
    )
    assert following == f"Next: `gpuctl logs {name}`, `gpuctl report {name}`"


def test_logs_say_what_they_lack_while_a_run_goes_on_and_when_its_head_is_gone(
    cluster: Target,  # noqa: F811
    detached: Callable[..., str],
    connections: LocalConnections,  # noqa: F811
    aws: Target,
    answer_calls: Callable[[Answer], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = detached("echo first; while sleep 0.2; do echo more; done")
    with client("attach", name) as first:
        first.read_until("[node1] more\n")
        first.process.kill()
    kept = gpuctl("logs", name, "--rank", "1")
    assert kept.exit_code == 0
    assert kept.stdout.splitlines()[:2] == ["[node1] first", "[node1] more"]
    assert kept.stderr == (
        f"gpuctl: run {name} is not over, and its newest output may be missing:"
        f" `gpuctl logs {name} -f` fetches it\n"
    )
    states = iter(("running", "stopped"))

    def end(call: ApiCall) -> Any:
        if call.operation != "DescribeInstances":
            return call.ask()
        head = {"State": {"Name": next(states)}, "StateReason": {"Message": "by a person"}}
        return {"Reservations": [{"Instances": [{"InstanceId": "i-1", **head}]}]}

    answer_calls(end)
    connections.cut_after, connections.stays_cut = 0, True
    reason = "node0 was lost: its machine i-1 is stopped: by a person"
    with History(cluster.runs) as history:
        record, progress, limits = history.find(name), Output().progress(), Limits(silent_s=0)
    seen: list[Event] = []
    with pytest.raises(RunError) as lost:
        follow_journal(
            ChosenTarget(), record, on_event=seen.append, watcher=progress, limits=limits
        )
    assert str(lost.value) == f"run {name}: {reason}; `gpuctl up` replaces it"
    silent = r"gpuctl: the head has not answered for \d+ s: node0: the connection was lost\n"
    assert re.fullmatch(silent, capfd.readouterr().err)
    assert "more" in [event.text for event in seen if isinstance(event, Printed)]
    connections.cut_after = None
    again = gpuctl("logs", name, "-f")
    assert again.stderr == f"gpuctl: the output of run {name} may be incomplete: {reason}\n"
    assert str(gpuctl("attach", name).exception) == f"run {name} failed: {reason}"
    asyncio.run(session.stop(name, INVENTORY, cluster.runs))


def test_attach_ends_with_the_jobs_code_and_json_has_its_result(
    detached: Callable[..., str],
) -> None:
    name = detached("echo bad; exit 7")
    done = gpuctl("attach", name, "--json")
    assert done.exit_code == 7
    result = json.loads(done.stdout)
    assert (result["run_id"], result["status"], result["exit_code"]) == (name, "failed", 7)
    again = gpuctl("attach", "job")
    assert again.exit_code == 7
    assert f"Run {name}: failed in " in again.stdout


def test_since_leaves_out_what_is_older(cluster: Target, detached: Callable[..., str]) -> None:  # noqa: F811
    name = detached("echo '8 2 float sum -1 1 2 3 0 4 5 6 0'; echo new")
    assert gpuctl("wait", name).exit_code == 0
    journal = cluster.runs / name / "journal.jsonl"
    events = []
    for event in map(json.loads, journal.read_text().splitlines()):
        for line in event.get("text", "").split("\n"):  # one event may have both lines
            hour = 3600 if line.startswith("8 2 float") else 0
            text = {"text": line} if "text" in event else {}
            events.append({**event, "time": event["time"] - hour, **text})
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    recent = gpuctl("attach", name, "--since", "30m").stdout
    assert "[node0] new\n" in recent
    assert "[node0] 8 2 float" not in recent
    assert "busbw" in recent, "the table at the end is whole"
    assert "[node0] 8 2 float" in gpuctl("attach", name).stdout
    refused = gpuctl("attach", name, "--since", "soon")
    assert str(refused.exception) == (
        "--since is 'soon': it must be a whole number (at most 6 digits) and a unit: s, m, h or d"
        " (30m, 8h); write 10m or 2h"
    )


def test_wait_ends_with_the_runs_code_and_in_time(
    detached: Callable[..., str], tmp_path: Path
) -> None:
    name = detached(f"until test -e {tmp_path}/go; do sleep 0.1; done; exit 7")
    late = gpuctl("wait", name, "--timeout", "1s")
    assert late.exit_code == 124
    assert late.stderr == f"gpuctl: run {name} did not end within 1s; it goes on\n"
    (tmp_path / "go").touch()
    for _ in range(2):  # the second time the history knows
        done = gpuctl("wait", name)
        assert done.exit_code == 7
        assert done.stdout in {
            f"Run {name}: failed, exit code 7: node{rank}: exited with 7\n" for rank in (0, 1)
        }


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [("detach\n", 130, "goes on on cluster demo"), ("what\ns\n", 130, ": stopped in ")],
    ids=["detach", "stop"],
)
def test_ctrl_c_on_a_terminal_asks(
    cluster: Target,  # noqa: F811
    tmp_path: Path,
    typed: str,
    code: int,
    said: str,
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("type: task\nname: job\nnodes: 2\ncommands: [echo up; sleep 1000]\n")
    with terminal() as (person, program), client("run", str(file), stdin=program) as it:
        it.read_until("[node1] up")
        it.interrupt()
        it.read_until("[stop/detach]: ")
        os.write(person, typed.encode())
        assert it.end() == code, it.text
    assert said in it.text
    with History(cluster.runs) as history:
        name = history.find("job").run_id
    question = f"{name}: stop it, or detach and leave it running? Ctrl-C again aborts it"
    assert it.text.count(f"\n{question} [stop/detach]: ") == len(typed.splitlines())
    if typed == "detach\n":
        assert gpuctl("stop", name).exit_code == 0


def test_ctrl_c_again_aborts(cluster: Target, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "run.yaml"
    ended = tmp_path / "ended"
    until = f"until test -e {ended}; do sleep 0.1; done"  # it still stops when gpuctl ends
    slow = f"trap '{until}' TERM; echo up; sleep 1000 & wait"
    file.write_text(f"type: task\nname: job\nnodes: 2\ncommands: [{json.dumps(slow)}]\n")
    with terminal() as (_, program), client("run", str(file), stdin=program) as it:
        it.read_until("[node1] up")
        it.interrupt()
        it.read_until("[stop/detach]: ")
        it.interrupt()
        assert it.end() == 130, it.text
    ended.touch()
    assert "was asked to stop, and gpuctl does not wait for its end; `gpuctl wait job-" in it.text
    assert gpuctl("wait", "job").exit_code == 130


def test_ctrl_c_twice_detaches_an_attached_client(detached: Callable[..., str]) -> None:
    name = detached("echo up; sleep 1000")
    with terminal() as (_, program), client("attach", name, stdin=program) as it:
        it.read_until("[node1] up")
        it.interrupt()
        question = f"{name}: stop it, or detach and leave it running? Ctrl-C again detaches"
        it.read_until(f"{question} [stop/detach]: ")
        it.interrupt()
        assert it.end() == 130, it.text
    assert f"Run {name} goes on on cluster demo without this client." in it.text
    assert gpuctl("stop", name).exit_code == 0


@pytest.mark.parametrize("options", [("--on-interrupt", "detach"), ()])
def test_without_a_terminal_an_attached_client_detaches(
    detached: Callable[..., str], options: tuple[str, ...]
) -> None:
    name = detached("echo up; sleep 1000")
    with client("attach", name, *options) as it:
        it.read_until("[node1] up")
        it.interrupt()
        assert it.end() == 130
    assert f"Run {name} goes on on cluster demo without this client." in it.text
    assert gpuctl("stop", name).exit_code == 0


def test_on_interrupt_takes_three_words(gpuctl_run: Call) -> None:  # noqa: F811
    refused = gpuctl_run("type: task\nname: job\ncommands: [x]\n", "--on-interrupt", "die")
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == "--on-interrupt is 'die'; stop, detach and ask are allowed"


@pytest.fixture
def going(rented: Target, detached: Callable[..., str]) -> str:  # noqa: F811
    """A run with `on_stop: destroy` that nobody follows."""
    return detached("echo here", on_stop="destroy")


def test_an_attached_client_removes_the_cluster(rented: Target, going: str) -> None:  # noqa: F811
    done = gpuctl("attach", going)
    assert done.exit_code == 0, done.output
    assert is_removed(rented)
    assert "Cluster demo is gone: 1 resources removed" in done.stdout


@pytest.mark.parametrize(("ours", "theirs"), [("keep", "destroy"), ("destroy", "keep")])
def test_a_head_does_not_decide_whether_the_cluster_is_removed(
    rented: Target,  # noqa: F811
    detached: Callable[..., str],
    connections: LocalConnections,  # noqa: F811
    ours: str,
    theirs: str,
) -> None:
    """This machine's history decides: a job is root on the head."""
    name = detached("true", on_stop=ours)
    with (connections.run_folder(name) / "journal.jsonl").open("r+") as journal:
        first = journal.readline()
        changed = json.dumps({**json.loads(first), "on_stop": theirs}, separators=(",", ":"))
        journal.seek(0)
        journal.write(changed.ljust(len(first) - 1))  # the supervisor appends behind it
    done = gpuctl("attach", name)
    assert done.exit_code == 0, done.output
    assert is_removed(rented) == (ours == "destroy")
