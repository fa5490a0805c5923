"""Arbitrary JSON for every reader of somebody else's JSON: an error of gpuctl's, and nothing else.

A reader may refuse with a GpuctlError, or with Malformed, which its caller makes a warning. It
writes no file outside its folder and starts no program. Values are arbitrary, or a valid document
of which one part is replaced.
"""

import ast
import asyncio
import copy
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import config
from config.errors import GpuctlError
from config.foreign import Malformed, parse_foreign
from config.identifiers import SSH_HOST, is_valid
from config.progress import silent
from config.target import Target
from engine.agent.journal.journal_file import JournalReader
from engine.analysis.metrics.live import parse_live
from engine.contract.codec import to_json
from engine.contract.events import EVENTS
from engine.contract.node_plan import CodePlan, ImagePlan
from engine.contract.plan import RunOrder
from engine.plan.source_tree import tree_of
from engine.record.history import History, RunRecord
from engine.record.journal_copy import JournalCopy, recorded_events
from engine.record.kept_results import keep_results
from engine.record.metrics_record import parse_samples
from engine.record.run_context import Setting
from engine.session import outputs, session
from engine.session.cluster_runs import find_holders
from engine.session.code_transfer import pass_tree, send_tree
from engine.session.container_images import pull
from engine.session.head import find_run, plans_of
from engine.session.ranks import compared, read_answer
from infra.fleet import read_fleet
from nodes.identity import identity_lines
from operations.prepared_run import saved_inventory
from provision.health.facts import read as read_facts
from provision.hosts.machine import problems
from provision.hosts.machine import read as read_machine
from provision.setup.node_hardware import read as read_hardware
from provision.setup.node_setup import read_result
from provision.state.cluster_lock import Lock
from provision.state.store import ClusterStore
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory, make_plan
from tests.security.test_head import HERE, LIVE, Heads, heads, started  # noqa: F401  a fixture

pytestmark = pytest.mark.slow

RUN = "job-000001"
HOSTILE = (
    *("", ".", "..", "../../x", "/etc/passwd", "a;id", "$(id)", "`id`", "-oProxyCommand=id"),
    *("a\nb", "a\x00b", "\x1b[2J", "é", "\u2028", "x" * 300, "a" * 70_000, "\ud800", "~"),
)
NUMBERS = (0, -1, 1 << 31, 1 << 63, -(1 << 63) - 1, 10**30, 1e308, -0.0, float("inf"), float("nan"))

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(HOSTILE)
    | st.sampled_from(NUMBERS)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Yield the path of every part of a JSON value."""
    yield path
    parts: dict[Any, Any] = dict(enumerate(value)) if isinstance(value, list) else {}
    for key, part in (value if isinstance(value, dict) else parts).items():
        yield from places(part, (*path, key))


@st.composite
def spoiled(draw: Any, *documents: Any) -> Any:
    """Return an arbitrary value, or one of the documents with a part replaced or removed."""
    if draw(st.integers(0, 9)) == 0:
        return draw(values)
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([place for place in places(document) if place]))
        part = document
        for key in path[:-1]:
            part = part[key]
        if draw(st.integers(0, 4)) == 0:
            del part[path[-1]]
        else:
            part[path[-1]] = draw(values)
        if not document:
            break
    return document


_WATCHED: list[Path] = []
_SEEN: list[str] = []
_PROGRAMS = ("subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "os.system", "pty.spawn")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "shutil.rmtree")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _WATCHED:
        return
    if event in _PROGRAMS:
        _SEEN.append(f"{event} {arguments!r}")
    writes = (
        event == "open"
        and isinstance(arguments[2], int)
        and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )
    if not writes and event not in _CHANGES:
        return
    for name in arguments[1:2] if event in ("os.symlink", "os.link") else arguments[:1]:
        if isinstance(name, (str, bytes, os.PathLike)):
            place = Path(os.fsdecode(name))
            path = Path(os.path.realpath(place.parent), place.name)
            if not path.is_relative_to(_WATCHED[0]) and not str(path).startswith("/dev/"):
                _SEEN.append(f"{event} {path}")


sys.addaudithook(_audit)


@contextmanager
def confined() -> Iterator[Path]:
    """Yield a folder; fail if the block writes outside it, or starts a program.

    An error of the block is one of gpuctl's, or Malformed.
    """
    with tempfile.TemporaryDirectory() as folder:
        _SEEN.clear()
        _WATCHED.append(Path(os.path.realpath(folder)))
        try:
            yield Path(folder)
        except (GpuctlError, Malformed) as error:
            assert len(str(error)) < 100_000, "an error is for a terminal"
        finally:
            _WATCHED.clear()
        assert _SEEN == []


fuzz = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

ORDER = json.loads(json.dumps(to_json(RunOrder(make_plan(), {}).without_common_texts())))
RECORD: dict[str, Any] = {
    **{"run_id": RUN, "name": "job", "cluster": "demo", "nodes": 2, "on_stop": "keep"},
    **{"status": "done", "exit_code": 0, "first_failed_rank": None, "reason": ""},
    **{"started": "2026-11-20T19:00:00Z", "ended": "2026-11-20T19:10:00Z", "cost_usd": 1.0},
    "followed": [{"nodes": ["node0"], "text": "x"}],
}
SETTING = {
    "type": "task",
    "region": "us-east-1",
    "zone": "a",
    "instance_type": "p",
    "is_spot": True,
}
LOCK = {
    **{"id": "a", "owner": "anna", "host": "desk", "machine": "b", "pid": 1, "command": "up"},
    **{"since": "2026-11-20T19:00:00Z", "renewed": "2026-11-20T19:00:00Z"},
}


@pytest.mark.parametrize(
    ("model", "document"), [(RunRecord, RECORD), (Setting, SETTING), (Lock, LOCK)]
)
@fuzz
@given(data=st.data())
def test_an_object_of_the_bucket(model: Any, document: Any, data: st.DataObject) -> None:
    text = json.dumps(data.draw(spoiled(document)))
    with confined() as folder:
        value = parse_foreign(model, text)
        if isinstance(value, RunRecord):
            with History(folder) as history:
                history.adopt(value)
                assert history.runs() == (value,)


FIRST = json.loads(started(run_id=RUN, name="job"))
LINES = [
    FIRST,
    {**FIRST, "kind": "run_queued", "place": 1, "ahead": ["other-000002"]},
    {"kind": "output", "time": 1.0, "rank": 0, "stream": "stdout", "text": "x", "offset": 0},
    {
        **{"kind": "table_read", "time": 1.0, "table": 0, "case": 1},
        "facts": {"rank": 0, "collective": "all_reduce", "flags": {"checks": 1}},
        **{"first_rank": 0, "first_row": 0, "ended_at": 8},
        "ranks": [
            {"rank": 0, "group": 0, "pid": 4, "host": "node0", "device": 0, "pci": "a", "name": "b"}
        ],
        "rows": [
            {
                **{"size": 8, "count": 2, "dtype": "float", "redop": "sum", "root": -1},
                "out_of_place": {"time_us": 1.0, "algbw": 1.0, "busbw": 1.0, "wrong": 0},
                "in_place": None,
            }
        ],
    },
    {"kind": "evidence", "time": 1.0, "rank": 0, "node": "node0", "source": "ping", "text": "x"},
    {"kind": "table_written", "time": 1.0, "rank": 0, "case": 0, "document": {"results": []}},
    {
        **{"kind": "output_dropped", "time": 1.0, "start": 10, "end": 20},
        "ranks": [{"rank": 0, "size": 3, "since": 1.0, "until": 2.0}],
    },
    {"kind": "network_seen", "time": 1.0, "rank": 0, "level": "warning", "text": "x"},
    {"kind": "notified", "time": 1.0, "number": 1, "target": 0, "event": "end", "tries": 1},
    {"kind": "clock_set", "time": 1.0, "rank": 0, "seconds": 1.0, "text": "x"},
    {"kind": "node_interrupted", "time": 1.0, "rank": 0, "action": "terminate", "at": "2026"},
    {"kind": "attempt_started", "time": 1.0, "number": 2, "nodes": FIRST["nodes"]},
    {
        **{"kind": "run_finished", "time": 2.0, "status": "failed", "exit_code": 1},
        **{"first_failed_rank": 0, "reason": "x", "followed": [{"nodes": ["node0"], "text": "x"}]},
    },
]
journals = st.lists(spoiled(*LINES), max_size=6).map(lambda lines: [FIRST, *lines, LINES[-1]])


@fuzz
@given(kind=st.sampled_from(sorted(EVENTS)), lines=journals, more=values)
def test_a_heads_journal(
    heads: Heads,  # noqa: F811
    kind: str,
    lines: list[Any],
    more: Any,
) -> None:
    event = {**more, "kind": kind} if isinstance(more, dict) else {"kind": kind}
    heads.answers["demo"] = "".join(
        json.dumps(line) + "\n" for line in [*lines[:-1], event, lines[-1]]
    )
    with confined() as folder:
        with History(folder) as history:
            history.begin(make_plan())
        asyncio.run(session.follow(RUN, HERE, folder, lambda _: None))


@fuzz
@given(lines=st.lists(spoiled(*LINES), max_size=6))
def test_a_journal_of_the_bucket(lines: list[Any]) -> None:
    with confined() as folder:
        (folder / RUN).mkdir()
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / RUN / "journal.jsonl").write_text(text)
        for _ in recorded_events(folder, RUN):
            pass
        with History(folder) as history:
            history.begin(make_plan())
            keep_results(RUN, folder, history)
            history.tables(RUN)
            history.findings(RUN)
        reader = JournalReader(folder / RUN / "journal.jsonl", 15)
        list(reader.read())
        reader.close()
        copied = JournalCopy(folder, RUN)
        for line in lines:
            copied.append(json.dumps(line))
        copied.close()


@fuzz
@given(answer=spoiled(*LINES[:2]))
def test_a_heads_answer_about_a_run(heads: Heads, answer: Any) -> None:  # noqa: F811
    heads.answers["demo"] = json.dumps(answer) + "\n"
    with confined():
        run = asyncio.run(find_run(HERE, RUN))
        assert run is None or (run.cluster, run.run_id) == ("demo", RUN)


@fuzz
@given(words=st.lists(st.sampled_from([*HOSTILE, RUN, "started", "node0"]), max_size=4))
def test_a_heads_answer_about_its_runs(heads: Heads, words: list[str]) -> None:  # noqa: F811
    heads.answers["demo"] = f"{' '.join(words)}\n\n"
    with confined():
        asyncio.run(find_holders(HERE))


@fuzz
@given(answer=spoiled(ORDER))
def test_a_heads_answer_about_a_plan(heads: Heads, answer: Any) -> None:  # noqa: F811
    heads.answers["demo"] = json.dumps(answer) + "\n"
    with confined():
        asyncio.run(plans_of([RUN], HERE))


SAMPLE = {
    **{"time": 1.0, "rank": 0, "cpu_s": 1.0, "cores": 4, "memory": [1, 2], "disk": [1, 2]},
    **{"gpus": [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]], "sources": ["nvidia-smi"]},
}


@fuzz
@given(answer=spoiled({**LIVE, "samples": {"0": [SAMPLE, {**SAMPLE, "time": 2.0}]}}))
def test_a_heads_answer_about_its_metrics(answer: Any) -> None:
    with confined():
        parse_live(f"5.0\n{json.dumps(answer)}\n")


@fuzz
@given(sample=spoiled(SAMPLE))
def test_a_sample(sample: Any) -> None:
    with confined():
        for found in parse_samples([json.dumps(sample)]):
            list(found.readings)


ITEMS = [["a", "file", 0o644, "", 3], ["b", "folder", 0o755, "", 0], ["c", "link", 0o777, "a", 0]]


class Talk:
    """A node's answer: a list of outputs, and bytes without end."""

    def __init__(self, line: bytes) -> None:
        self._line = line

    async def write(self, data: bytes) -> None:
        pass

    def end_input(self) -> None:
        pass

    async def line(self, most: int = 0) -> bytes:
        return self._line

    async def read(self, size: int) -> bytes:
        return b"x" * min(size, 8)


@fuzz
@given(header=spoiled({"files": ITEMS}))
def test_a_nodes_list_of_outputs(monkeypatch: pytest.MonkeyPatch, header: Any) -> None:
    class Connections:
        @staticmethod
        @contextmanager
        def _talk() -> Iterator[Talk]:
            yield Talk(json.dumps(header).encode() + b"\n")

        def converse(self, *_: object) -> Any:
            return _Async(self._talk())

    monkeypatch.setattr(outputs, "connect", lambda _: _Async(_here(Connections())))
    plan = make_plan(outputs=("x",))
    with confined() as folder:
        asyncio.run(outputs.fetch_outputs(plan, HERE, folder / "outputs", silent))
        for path in folder.rglob("*"):
            assert path.is_symlink() or path.resolve().is_relative_to(folder.resolve())


@contextmanager
def _here(value: Any) -> Iterator[Any]:
    yield value


class _Async:
    """A context manager as an asynchronous one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aenter__(self) -> Any:
        return self._inner.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        return self._inner.__exit__(*error)


@pytest.mark.parametrize("file", ["cluster.json", "inventory.json"])
@fuzz
@given(data=st.data())
def test_a_file_of_a_cluster(file: str, data: st.DataObject) -> None:
    with confined() as folder:
        target = Target("aws", "us-east-1", folder)
        remember(make_inventory(2), target)
        store = ClusterStore(target)
        path = store.folder("demo") / file
        path.write_text(json.dumps(data.draw(spoiled(json.loads(path.read_text())))))
        if file == "cluster.json":
            store.record("demo")
            identity_lines(store.folder("demo"))
        else:
            store.inventory("demo")


@fuzz
@given(lines=st.lists(spoiled({"kind": "missing", "blobs": []}, {"kind": "received", "node": "x"})))
def test_a_heads_answers_about_the_code(heads: Heads, lines: list[Any]) -> None:  # noqa: F811
    heads.answers["demo"] = "".join(json.dumps(line) + "\n" for line in lines)
    with confined():
        asyncio.run(send_tree(tree_of([]), make_plan(), HERE, silent))
    with confined():
        plan = replace(make_plan(), code=CodePlan(tree="a" * 64))
        asyncio.run(pass_tree(plan, HERE, ["node1"]))


@fuzz
@given(
    word=st.sampled_from(["image", "there", "failed", ""]),
    identity=st.sampled_from([*HOSTILE, "sha256:0a1b"]),
    names=spoiled(["docker.io/library/debian@sha256:0a1b"]),
)
def test_a_nodes_answer_about_an_image(
    heads: Heads,  # noqa: F811
    word: str,
    identity: str,
    names: Any,
) -> None:
    heads.answers["demo"] = f"gpuctl: {word} {identity} {json.dumps(names)}\n"
    plan = replace(make_plan(), image=ImagePlan(reference="debian:12"))
    with confined():
        asyncio.run(pull(plan, HERE, {}, silent))


KINDS = (
    *("arrival", "machine", "name", "home", "address", "rootlogin", "hostkey", "include"),
    *("python", "has", "gpus", "gpu", "cluster", "user", "mount"),
)
WORDS = st.lists(st.sampled_from([*HOSTILE, "10.0.0.1", "22", "9" * 5000]), max_size=4)


@fuzz
@given(said=st.lists(st.tuples(st.sampled_from(KINDS), WORDS), max_size=9))
def test_what_a_machine_says_about_itself(said: list[tuple[str, list[str]]]) -> None:
    lines = [f"gpuctl: {kind} {' '.join(words)}" for kind, words in said]
    with confined():
        machine = read_machine("\n".join([*lines, "gpuctl: end"]))
        assert machine is not None
        list(problems(machine, None, "c0ffee"))


HARDWARE = ("interface", "efa", "hca", "launcher", "software", "program", "module")


@fuzz
@given(said=st.lists(st.tuples(st.sampled_from(HARDWARE), WORDS), max_size=9))
def test_what_a_node_says_about_its_hardware(said: list[tuple[str, list[str]]]) -> None:
    text = "\n".join(f"gpuctl: {kind} {' '.join(words)}" for kind, words in said)
    with confined():
        read_hardware(make_inventory(1).nodes[0], text)


SECTIONS = (
    *("gpus", "throttle", "remap", "nvlink", "efa", "gpudirect", "kernel", "memlock", "disk"),
    *("versions", "names", "clock", "verify", "loopback"),
)


@fuzz
@given(
    sections=st.lists(st.tuples(st.sampled_from(SECTIONS), WORDS), max_size=6),
    diagnostic=spoiled({"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "a"}]}]}}),
    text=st.text(),
)
def test_what_a_node_says_about_its_health(
    sections: list[tuple[str, list[str]]], diagnostic: Any, text: str
) -> None:
    parts = [*sections, ("dcgm", [json.dumps(diagnostic)]), ("gpus", [text])]
    with confined():
        read_facts("".join(f"=== {name}\n{' '.join(w)}\n=== exit 0\n" for name, w in parts))


def _examined(rank: int | None, frames: list[Any]) -> dict[str, Any]:
    return {
        **{"pid": 7, "rank": rank, "size": 2, "command": "python3", "state": "S", "wchan": "x"},
        **{"has_run": False, "frames": frames, "text": "thread 7: state S x"},
    }


_FRAME = {"function": "load", "path": "/job/train.py", "line": 88}
EXAMINED = {"processes": [_examined(0, [_FRAME]), _examined(None, [])], "time": 0.0}


@fuzz
@given(first=spoiled(EXAMINED), second=spoiled(EXAMINED))
def test_what_a_node_shows_of_its_ranks(first: Any, second: Any) -> None:
    with confined():
        answers = {
            f"node{n}": read_answer("node0", json.dumps(a)) for n, a in ((0, first), (1, second))
        }
        compared(answers)


@fuzz
@given(result=spoiled({"v1": {"errors": []}}), stages=spoiled({"v1": {"init": {"errors": []}}}))
def test_what_cloud_init_says(result: Any, stages: Any) -> None:
    with confined():
        read_result("status: done", json.dumps(result), json.dumps(stages))


FLEET = {
    **{"vpc_id": "vpc-1", "subnet_id": "subnet-1", "bastion_id": "", "bastion_address": ""},
    "nodes": [{"name": "node0", "instance_id": "i-1", "private_ip": "10.0.0.4", "public_ip": ""}],
}


@fuzz
@given(value=spoiled(FLEET))
def test_a_fleet_of_pulumis_state(value: Any) -> None:
    with confined():
        fleet = read_fleet(value, "demo")
        assert all(is_valid(node.private_ip, SSH_HOST) for node in fleet.nodes)


@fuzz
@given(value=spoiled(make_inventory(2).model_dump(mode="json")))
def test_an_inventory_that_somebody_saved(value: Any) -> None:
    with confined() as folder:
        (folder / "inventory.json").write_text(json.dumps(value))
        saved_inventory(folder / "inventory.json")


OWN = "what this machine wrote itself, for itself"
FILES = "files that people write: tests/security/test_file.py, tests/config"
READERS = {
    "cli/complete.py": "names of nodes, each checked before it is offered",
    "config/catalogue": "a part of gpuctl",
    "config/foreign.py": "the parser of all others",
    "config/loading": FILES,
    "config/settings_model.py": FILES,
    "engine/analysis/bisect/report.py": OWN,
    "engine/analysis/metrics/live.py": test_a_heads_answer_about_its_metrics,
    "engine/contract": "the codec: what calls it is here",
    "engine/plan": FILES,
    "engine/record/events.py": test_a_heads_journal,
    "engine/record/history.py": OWN,
    "engine/record/metrics_record.py": test_a_sample,
    "engine/record/outputs_folder.py": OWN,
    "engine/session/cluster_runs.py": test_a_heads_answer_about_its_runs,
    "engine/session/code_transfer.py": test_a_heads_answers_about_the_code,
    "engine/session/container_images.py": test_a_nodes_answer_about_an_image,
    "engine/session/head.py": test_a_heads_answer_about_a_plan,
    "engine/session/ranks.py": test_what_a_node_shows_of_its_ranks,
    "engine/session/outputs.py": test_a_nodes_list_of_outputs,
    "formats": FILES,
    "infra/fleet.py": test_a_fleet_of_pulumis_state,
    "infra/stack": "what Pulumi's engine, which gpuctl starts, prints: tests/infra/test_plugins.py",
    "nodes/broker.py": OWN,
    "nodes/identity.py": test_a_file_of_a_cluster,
    "nodes/kept_connections.py": OWN,
    "operations/prepared_run.py": test_an_inventory_that_somebody_saved,
    "operations/shared_journals.py": test_an_object_of_the_bucket,
    "operations/shared_runs.py": test_an_object_of_the_bucket,
    "provision/aws/account.py": "the sign-in that AWS's own command keeps on this machine",
    "provision/billing/ledger.py": OWN,
    "provision/billing/prices.py": "AWS's price list",
    "provision/health/facts.py": test_what_a_node_says_about_its_health,
    "provision/hosts/machine.py": test_what_a_machine_says_about_itself,
    "provision/setup/node_setup.py": test_what_cloud_init_says,
    "provision/setup/node_hardware.py": test_what_a_node_says_about_its_hardware,
    "provision/state": test_a_file_of_a_cluster,
}
"""The files and folders that parse JSON or values into types, and the test or the reason."""
_PARSERS = (
    *("loads", "load", "model_validate", "model_validate_json", "validate_python"),
    *("validate_json", "parse_foreign", "from_json"),
)


def test_every_reader_of_json_has_a_test_or_a_reason() -> None:
    """The agent is not among them: it reads on nodes, where a job is root anyway."""
    root = Path(config.__file__).parents[1]
    readers = set()
    for room in ("cli", "config", "engine", "formats", "infra", "nodes", "operations", "provision"):
        for file in (root / room).rglob("*.py"):
            path = str(file.relative_to(root))
            if path.startswith("engine/agent/"):
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and _name(node.func) in _PARSERS:
                    readers.add(path)
    named = {
        path: [key for key in READERS if path == key or path.startswith(f"{key}/")]
        for path in readers
    }
    assert [path for path, keys in sorted(named.items()) if not keys] == []
    assert sorted(set(READERS) - {key for keys in named.values() for key in keys}) == []


def _name(function: ast.expr) -> str:
    """Return the name of a function that is called: `loads` of `json.loads`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
