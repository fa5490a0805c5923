"""A cluster's head: a job is root there, so it answers what it likes, for its own cluster alone."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from config.errors import GpuctlError, NodeError, RunError
from config.progress import silent
from config.run.sources import file_source
from config.target import Target
from engine.agent.journal.journal_file import JOURNAL, end_of_line
from engine.analysis.metrics.live import live_runs, parse_live
from engine.contract.codec import to_json
from engine.contract.event import Event
from engine.contract.head_events import HeadUnreachable, OutputJudged
from engine.contract.node_plan import CodePlan, ImagePlan
from engine.contract.plan import RunOrder
from engine.contract.verdict import BUSY
from engine.contract.worker_events import Output
from engine.plan.source_tree import tree_of
from engine.record import metrics_record
from engine.record.events import parse_event
from engine.record.history import History
from engine.record.journal_copy import (
    Bound,
    EventBudget,
    evidence_folder,
    recorded_events,
    samples_path,
)
from engine.record.run_errors import RunLost
from engine.session import session
from engine.session.cluster_runs import drop_run, find_holders, move_run
from engine.session.code_transfer import pass_tree, send_tree
from engine.session.container_images import pull
from engine.session.following import Limits
from engine.session.head import Head, find_run, plans_of
from nodes.answers import Completed
from nodes.inventory import Inventory, Node
from nodes.ssh import connect
from operations.lost_head import head_watch, lost_head
from provision.state.store import ClusterStore
from tests.cli.conftest import remember
from tests.cli.conftest import remembered as remembered  # noqa: PLC0414  a fixture
from tests.connections import Connect, WithoutSsh
from tests.engine.conftest import make_inventory, make_plan
from tests.nodes.conftest import Site
from tests.nodes.conftest import site as site  # noqa: PLC0414  a fixture

HERE = make_inventory(2)


class Heads:
    """The heads of clusters: what each answers to every command, and the commands that came."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.commands: list[str] = []
        self.exit_status = 0

    def connect(self, inventory: Inventory) -> "Answers":
        return Answers(self, inventory.cluster)


class Answers(WithoutSsh):
    """The connection to a head."""

    def __init__(self, heads: Heads, cluster: str) -> None:
        self._heads, self._cluster = heads, cluster

    async def run(self, node: Node, command: str, **_: object) -> Completed:
        self._heads.commands.append(command)
        answer = self._heads.answers.get(self._cluster, "")
        return Completed(self._heads.exit_status, answer, "")

    async def lines(self, node: Node, command: str, **_: object) -> AsyncGenerator[str, None]:
        self._heads.commands.append(command)
        for line in self._heads.answers.get(self._cluster, "").splitlines():
            yield line

    @asynccontextmanager
    async def converse(self, node: Node, command: str) -> AsyncGenerator["Talk", None]:
        yield Talk([line async for line in self.lines(node, command)])


class Talk:
    """A conversation in which the head says what it likes."""

    def __init__(self, answers: list[str]) -> None:
        self._answers = answers

    async def write(self, data: bytes) -> None:
        """Every head takes what it gets."""

    def end_input(self) -> None:
        """It may say more."""

    async def lines(self) -> AsyncGenerator[bytes, None]:
        for line in self._answers:
            yield line.encode()


@pytest.fixture
def heads(reach_nodes: Callable[[Connect], None]) -> Heads:
    answering = Heads()
    reach_nodes(answering.connect)
    return answering


def started(**changes: object) -> str:
    """Return a first event as a head answers it."""
    node = {"rank": 0, "name": "node0", "private_ip": "10.0.0.1", "role": "master"}
    fields = {
        **{"kind": "run_started", "time": 1.0, "run_id": "train-000001", "name": "train"},
        **{"cluster": "demo", "startup_order": "any", "stop_criteria": "all-done"},
        **{"on_stop": "keep", "nodes": [node]},
    }
    return json.dumps({**fields, **changes}) + "\n"


def gpuctl(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_a_head_answers_for_a_run_of_its_cluster(heads: Heads) -> None:
    heads.answers["demo"] = started()
    run = asyncio.run(find_run(HERE, "train"))
    assert run is not None
    assert run.run_id == "train-000001"


NO_RUNS = {
    "another cluster's": started(cluster="prod"),
    "an id that leads out": started(run_id="../../x-000001"),
    "an id of a shell": started(run_id="train-000001;id"),
    "an id with a line": started(run_id="train-000001\nx"),
    "a cluster of a shell": started(cluster="demo;id"),
    "a node of a shell": started(
        nodes=[{"rank": 0, "name": "-oProxyCommand=id", "private_ip": "10.0.0.1", "role": "w"}]
    ),
    "an address of a shell": started(
        nodes=[{"rank": 0, "name": "node0", "private_ip": "-oProxyCommand=id", "role": "w"}]
    ),
    "a rank beyond all": started(
        nodes=[{"rank": 10**30, "name": "node0", "private_ip": "10.0.0.1", "role": "w"}]
    ),
    "a time without end": started().replace("1.0", "1e999"),
    "no time": started().replace("1.0", "NaN"),
    "a port of a shell": started(ports=["8000 -oProxyCommand=id"]),
    "nested": "[" * 100_000,
    "long": started(saved="x" * (2 << 20)),
    "no JSON": "no\n",
    "another kind": '{"kind": "output"}\n',
    "a kind that is no text": '{"kind": []}\n',
}


@pytest.mark.parametrize("case", NO_RUNS)
def test_a_hostile_answer_is_no_run(heads: Heads, case: str) -> None:
    heads.answers["demo"] = NO_RUNS[case]
    assert asyncio.run(find_run(HERE, "train")) is None
    assert asyncio.run(find_run(HERE, "train-000001")) is None


@pytest.mark.parametrize("name", ["../x", "-x", "a;id", "", "a\nb", "TRAIN", "$(id)"])
def test_no_head_is_asked_for_what_is_no_runs_name(heads: Heads, name: str) -> None:
    assert asyncio.run(find_run(HERE, name)) is None
    assert heads.commands == []


@pytest.fixture
def two(heads: Heads, remembered: Target) -> Heads:
    """This machine has the clusters `demo` and `prod`, and no run."""
    for name in ("demo", "prod"):
        remember(make_inventory(2).model_copy(update={"cluster": name}), remembered)
    return heads


def test_a_head_that_answers_for_another_cluster_is_not_heard(two: Heads) -> None:
    two.answers = {"demo": started(cluster="prod", time=9e9)}
    stopped = gpuctl("stop", "train")
    assert str(stopped.exception) == "there is no run train; no run was started yet"
    assert len(two.commands) == 2, "both heads were asked, and nothing else was sent"


def test_two_heads_that_claim_one_run_are_an_error_whatever_their_clocks(two: Heads) -> None:
    two.answers = {"demo": started(), "prod": started(cluster="prod", time=9e9)}
    for words in (("stop", "train-000001"), ("attach", "train"), ("wait", "train")):
        refused = gpuctl(*words)
        assert refused.exit_code == 1
        assert str(refused.exception) == (
            "several clusters claim the same run: train-000001 on cluster demo and train-000001 on"
            " cluster prod; an id belongs to one run, so one of the heads is wrong;"
            " `gpuctl queue demo` and `gpuctl queue prod` show their runs"
        )
    assert not any("agent.pyz" in command for command in two.commands)


def test_two_clusters_with_runs_of_one_name_ask_for_the_id(two: Heads) -> None:
    other = started(cluster="prod", run_id="train-000002", time=9e9)
    two.answers = {"demo": started(), "prod": other}
    refused = gpuctl("stop", "train")
    assert str(refused.exception) == (
        "several clusters have a run train: train-000001 on cluster demo and train-000002 on"
        " cluster prod; name the run by its id: train-000001 or train-000002"
    )


@pytest.mark.parametrize("run_id", ["../../x-000000", "a;id", "a b-000000", "saved", ""])
def test_no_command_is_made_of_what_is_no_runs_id(
    heads: Heads, tmp_path: Path, run_id: str
) -> None:
    for ask in (
        lambda: Head(HERE, run_id).send("stop"),
        lambda: move_run(run_id, HERE, 1),
        lambda: drop_run(run_id, HERE),
        lambda: session.follow(run_id, HERE, tmp_path / "runs", lambda _: None),
    ):
        with pytest.raises(RunError) as refused:
            asyncio.run(ask())
        assert str(refused.value) == f"{run_id!r} is no id of a run; `gpuctl ps` lists the runs"
    assert heads.commands == []


WHERE = f"node0 ({HERE.nodes[0].private_ip})"
WRONG = f"{WHERE} cannot report its runs: its answer is malformed: "
HOLDERS = {
    "half": ("train-000001 started node0\n", f"{WRONG}it is incomplete"),
    "few words": ("train-000001\n\n", f"{WRONG}it is incomplete"),
    "an id that leads out": (
        "../../x started node0\n\n",
        f"{WRONG}run_id: String should match pattern '^[a-z][a-z0-9-]{{0,40}}-[0-9a-f]{{6}}$'",
    ),
    "a node of a shell": (
        "train-000001 started -oProxyCommand=id\n\n",
        f"{WRONG}nodes.0: String should match pattern '^[A-Za-z0-9][A-Za-z0-9-]{{0,62}}$'",
    ),
    "another state": (
        "train-000001 dancing node0\n\n",
        f"{WRONG}state: Input should be 'waiting', 'started' or 'leaving'",
    ),
}


@pytest.mark.parametrize("case", HOLDERS)
def test_a_hostile_list_of_runs_is_one_line(heads: Heads, case: str) -> None:
    heads.answers["demo"], message = HOLDERS[case]
    with pytest.raises(NodeError) as wrong:
        asyncio.run(find_holders(HERE))
    assert wrong.value.message == message


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("no", "Invalid JSON: expected ident at line 1 column 2"),
        ("{}", "busy: Field required"),
        ('{"busy": []}', "busy: Tuple should have at least 1 item after validation, not 0"),
        (
            '{"busy": ["x; rm -rf ~"]}',
            "busy.0: String should match pattern '^[a-z][a-z0-9-]{0,40}-[0-9a-f]{6}$'",
        ),
    ],
)
def test_a_refusal_without_a_run_is_one_line(heads: Heads, answer: str, why: str) -> None:
    heads.answers["demo"], heads.exit_status = answer, BUSY
    with pytest.raises(NodeError) as wrong:
        asyncio.run(Head(HERE, "job-000001").start(make_plan(), {}))
    assert str(wrong.value) == f"{WHERE} refuses the run, and does not say why: {why}"


def test_a_plan_of_another_cluster_is_not_taken(heads: Heads) -> None:
    plan = replace(make_plan(), cluster="prod")
    heads.answers["demo"] = json.dumps(to_json(RunOrder(plan, {})))
    with pytest.raises(NodeError) as wrong:
        asyncio.run(plans_of(["job-000001"], HERE))
    claim = "node0 answers for run job-000001 of cluster prod, which is not its own"
    assert str(wrong.value) == claim
    heads.answers["demo"] = json.dumps(to_json(RunOrder(make_plan(), {})))
    with pytest.raises(NodeError):
        asyncio.run(plans_of(["other-000001"], HERE))


@pytest.mark.parametrize("line", ["no", "[]", "{}", "[" * 100_000, '{"plan": {"run_id": "x; id"}}'])
def test_a_plan_that_is_none_is_one_line(heads: Heads, line: str) -> None:
    heads.answers["demo"] = line
    with pytest.raises(RunError) as wrong:
        asyncio.run(plans_of(["job-000001"], HERE))
    assert str(wrong.value) == ("another version of gpuctl started a run; attach with that version")


CODE = {
    "no JSON": ("no", "Invalid JSON: expected ident at line 1 column 2"),
    "nested": ("[" * 100_000, "Invalid JSON: recursion limit exceeded at line 1 column 202"),
    "no kind": ("{}", "Unable to extract tag using discriminator 'kind'"),
    "a number in place of files": (
        '{"kind": "missing", "blobs": [1]}',
        "missing.blobs.0: Input should be a valid string",
    ),
    "a node of a shell": (
        '{"kind": "received", "node": "$(id)"}',
        "received.node: String should match pattern '^[A-Za-z0-9][A-Za-z0-9-]{0,62}$'",
    ),
    "another node": ('{"kind": "received", "node": "node7"}', "node7 is no node of the run"),
}


@pytest.mark.parametrize("case", CODE)
def test_a_hostile_answer_about_the_code_is_one_line(heads: Heads, case: str) -> None:
    heads.answers["demo"], why = CODE[case]
    message = f"node0 gave a wrong answer about the code: {why}"
    with pytest.raises(NodeError) as wrong:
        asyncio.run(send_tree(tree_of([]), make_plan(), HERE, silent))
    assert wrong.value.message == message
    plan = replace(make_plan(), code=CodePlan(tree="a" * 64))
    with pytest.raises(NodeError) as wrong:
        asyncio.run(pass_tree(plan, HERE, ["node1"]))
    assert wrong.value.message == message


@pytest.mark.parametrize("asked", [["0" * 64], ["OURS", "OURS"], ["OURS", "../../etc/shadow"]])
def test_a_head_gets_the_files_of_the_run_once(
    heads: Heads, tmp_path: Path, asked: list[str]
) -> None:
    (tmp_path / "train.py").write_text("pass")
    tree = tree_of([file_source(tmp_path / "train.py", "train.py")])
    (ours,) = tree.local
    blobs = [ours if name == "OURS" else name for name in asked]
    heads.answers["demo"] = json.dumps({"kind": "missing", "blobs": blobs})
    with pytest.raises(NodeError) as wrong:
        asyncio.run(send_tree(tree, make_plan(), HERE, silent))
    assert wrong.value.message == "node0 asks for files that the run does not have, or twice"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("image -v/:/host []", "its id is none"),
        ("image $(id) []", "its id is none"),
        ("image 0a1b", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        ("there 0a1b {}", "Input should be a valid array"),
        ("image 0a1b [[]]", "0: Input should be a valid string"),
        ('image 0a1b ["a b"]', "0: String should match pattern '^[A-Za-z0-9][!-~]{0,511}$'"),
    ],
)
def test_a_hostile_answer_about_an_image_is_one_line(heads: Heads, answer: str, why: str) -> None:
    heads.answers["demo"] = f"gpuctl: {answer}"
    plan = replace(make_plan(), image=ImagePlan(reference="debian:12"))
    with pytest.raises(NodeError) as wrong:
        asyncio.run(pull(plan, HERE, {}, silent))
    assert wrong.value.message == f"node0 gave a wrong answer about its image: {why}"


LIVE = {"run_id": "a-000000", "name": "a", "nodes": ["node0"], "clock": 0, "idle": {}}
SAMPLES: tuple[object, ...] = (
    *({}, [], {"0": []}, {"0": [1]}, {"0": {}}, {"0": [{"time": 1, "rank": 10**30}]}),
    *({"0": [{"time": 1e999, "rank": 0}]}, {"0": [{"time": 1, "rank": 0, "gpus": [[1e999]]}]}),
)


@pytest.mark.parametrize("samples", SAMPLES)
def test_hostile_samples_are_left_out(samples: object) -> None:
    found = parse_live(f"5.0\n{json.dumps({**LIVE, 'samples': samples})}\n")
    assert all(run.usages == () for run in found)
    assert parse_live("x\n") == parse_live("") == parse_live("5.0\n[]\n3\n" + "[" * 99_999) == ()


def test_metrics_are_asked_of_one_run_in_one_word(heads: Heads) -> None:
    asyncio.run(live_runs(HERE, "a b;id"))
    assert "for run in 'a b;id'." in heads.commands[0]


def test_a_head_does_not_end_another_run(heads: Heads, tmp_path: Path) -> None:
    with History(tmp_path) as history:
        for name in ("job-000001", "job-000002"):
            history.begin(replace(make_plan(), run_id=name))
    over = '{"kind": "run_finished", "time": 2.0, "status": "failed", "exit_code": 1,'
    heads.answers["demo"] = (
        started(run_id="job-000002", name="job")
        + f'{over} "first_failed_rank": 7, "reason": "hostile"}}\n'
    )
    with pytest.raises(RunError) as wrong:
        asyncio.run(session.follow("job-000001", HERE, tmp_path, lambda _: None))
    assert str(wrong.value) == (
        "node0 of cluster demo sent the journal of run job-000002 of cluster demo for job-000001;"
        " its answers cannot be trusted: a job is root on the nodes; `gpuctl down demo` removes the"
        " cluster"
    )
    with History(tmp_path) as history:
        assert [run.status for run in history.runs()] == ["running", "running"]


def test_a_rank_that_the_run_does_not_have_is_no_traceback(heads: Heads, tmp_path: Path) -> None:
    over = '{"kind": "run_finished", "time": 2.0, "status": "failed", "exit_code": 1,'
    heads.answers["demo"] = (
        started(run_id="job-000001", name="job")
        + f'{over} "first_failed_rank": 7, "reason": "rank 7"}}\n'
    )
    result = asyncio.run(session.follow("job-000001", HERE, tmp_path, lambda _: None))
    assert (result.first_failed_rank, result.first_failed_node) == (7, None)


@pytest.mark.parametrize("node", ["..", "../..", "/tmp", "a/b", "", "-x", "x\n"])
def test_evidence_of_a_node_that_is_none_is_a_warning(node: str) -> None:
    event = {"kind": "evidence", "time": 1.0, "rank": 1, "node": node, "source": "x", "text": "x"}
    assert parse_event(json.dumps(event)) == OutputJudged(
        time=1.0,
        rank=1,
        level="warning",
        text="the head sent a malformed event `evidence`, which is left out: node: String should"
        " match pattern '^[A-Za-z0-9][A-Za-z0-9-]{0,62}$'; the head may have another version of"
        " gpuctl",
    )


SILENT = HeadUnreachable(time=1.0, seconds=11.0, reason="node0: no answer")


def test_other_credentials_do_not_declare_a_run_lost(target: Target, tmp_path: Path) -> None:
    there = Target(**{**vars(target), "state": tmp_path / "state"})
    here: Any = SimpleNamespace(cluster_store=lambda _: ClusterStore(there))
    inventory = remember(make_inventory(2), there)
    ours = ClusterStore(there).record("demo")
    assert ours is not None
    lost = lost_head(here, inventory, make_plan())
    assert isinstance(lost, RunLost)
    machine = inventory.nodes[0].instance_id
    assert lost.reason == f"node0 was lost: its machine {machine} does not exist any more"

    ClusterStore(there).write(ours.model_copy(update={"account": "999999999999"}))
    assert lost_head(here, inventory, make_plan()) is None
    head_watch(here, inventory, make_plan())(SILENT)

    watch = head_watch(here, inventory, make_plan())
    ClusterStore(there).forget("demo")
    assert lost_head(here, inventory, make_plan()) is None, "nobody knows of which account it is"
    watch(SILENT)


@pytest.mark.parametrize("name", ["../x", "/etc", "", ".", "..", "A", "a b", "a;id", "-a", "a\nb"])
def test_a_name_that_no_cluster_has_is_no_folder(remembered: Target, name: str) -> None:
    store = ClusterStore(remembered)
    for use in ("folder", "record", "inventory", "known_record"):
        with pytest.raises(GpuctlError) as refused:
            getattr(store, use)(name)
        assert str(refused.value) == (
            f"{name!r} is no cluster's name; a name has lower-case letters, digits and hyphens, at"
            " most 30, with a letter first"
        )


def test_a_node_that_answers_without_end_is_one_line(site: Site) -> None:
    async def ask() -> None:
        async with connect(site.inventory) as connections:
            await connections.run(site.inventory.nodes[0], "yes")

    with pytest.raises(NodeError) as endless:
        asyncio.run(ask())
    assert str(endless.value) == "node0 (127.0.0.1) answered more than 16 MiB"


def test_a_copy_of_metrics_without_end_is_one_line(tmp_path: Path) -> None:
    path = samples_path(tmp_path, "job-000001")
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"x" * (4 << 20)))
    with pytest.raises(RunError) as endless:
        list(metrics_record.recorded_samples(tmp_path, "job-000001", 3 << 20))
    assert str(endless.value) == f"{path} is damaged: it has more than 3 MiB; remove the file"


END = (
    '{"kind": "run_finished", "time": 2.0, "status": "done", "exit_code": 0,'
    ' "first_failed_rank": null, "reason": ""}\n'
)
WITHIN = (
    "the head sent more than 0 MiB or 5 events in addition to output, or more than 0 MiB or 3 files"
    " of evidence: the rest is left out; a job is root on the head: check what ran there"
)


def event(kind: str, **fields: object) -> str:
    return json.dumps({"kind": kind, "time": 1.5, **fields}) + "\n"


def evidence(number: int) -> str:
    return event("evidence", rank=1, node=f"node{number}", source="ping", text="no answer")


SAID = event("output", rank=0, stream="stdout", text="said")
OTHERS = {
    "a known kind": event("node_ready", rank=0),
    "an unknown kind": event("dance"),
    "one without a kind": "{}\n",
    "a malformed one": event("node_ready", rank="0"),
    "evidence": evidence(1),
    "output whose rank is text": SAID.replace("0", '"0"'),
    "removed output": event("output_dropped", start=9, end=0, ranks=[]),
    "a table": event("table_written", rank=0, document={"x": "y" * 100}),
}


LIMITS = Limits(events=Bound(5, 1 << 10), evidence=Bound(3, 1 << 10))


def followed(heads: Heads, runs: Path, *lines: str, limits: Limits = LIMITS) -> list[Event]:
    """Return the events that a client sees of a head that sends these lines before the end."""
    heads.answers["demo"] = "".join((started(run_id="job-000001", name="job"), *lines, END))
    with History(runs) as history:
        history.begin(make_plan())
    seen: list[Event] = []
    result = asyncio.run(session.follow("job-000001", HERE, runs, seen.append, limits))
    assert result.status == "done"
    return seen


@pytest.mark.parametrize("case", OTHERS)
def test_events_without_end_are_left_out_with_one_warning(
    heads: Heads, tmp_path: Path, case: str
) -> None:
    seen = followed(heads, tmp_path, *([OTHERS[case]] * 5_000), SAID)
    kept = (tmp_path / "job-000001" / JOURNAL).read_bytes()
    assert len(kept) < 4 << 10
    warnings = [one for one in seen if isinstance(one, OutputJudged) and one.text == WITHIN]
    assert len(warnings) == 1
    assert [type(one).__name__ for one in seen[-2:]] == ["Output", "RunFinished"]
    copied = recorded_events(tmp_path, "job-000001", EventBudget(LIMITS.events, LIMITS.evidence))
    assert list(copied) == seen, "a copy is read as it was seen"
    sent = heads.answers["demo"].encode().splitlines(keepends=True)
    offset = 0
    for line in kept.splitlines(keepends=True):
        offset = end_of_line(offset, line)
    assert offset == sum(map(len, sent)), "each line is at its offset in the head's journal"


@pytest.mark.parametrize("line", [SAID, SAID.replace(": ", ":")])
def test_output_alone_uses_no_budget_of_events(heads: Heads, tmp_path: Path, line: str) -> None:
    seen = followed(heads, tmp_path, *([line] * 500))
    assert sum(isinstance(one, Output) for one in seen) == 500
    assert not any(isinstance(one, OutputJudged) for one in seen)


def test_files_of_evidence_are_bounded(heads: Heads, tmp_path: Path) -> None:
    seen = followed(heads, tmp_path, *map(evidence, range(400)))
    files = sorted(evidence_folder(tmp_path, "job-000001").rglob("*.txt"))
    assert [path.parent.name for path in files] == ["node0", "node1", "node2"]
    assert [one.text for one in seen if isinstance(one, OutputJudged)] == [WITHIN]


def test_a_second_client_gets_no_second_budget(heads: Heads, tmp_path: Path) -> None:
    with History(tmp_path) as history:
        history.begin(make_plan())
    lines = [started(run_id="job-000001", name="job"), *[OTHERS["an unknown kind"]] * 50]
    for _ in range(3):
        heads.answers["demo"] = "".join(lines)
        with pytest.raises(RunLost):  # its head sends no end
            asyncio.run(session.follow("job-000001", HERE, tmp_path, lambda _: None, LIMITS))
    assert (tmp_path / "job-000001" / JOURNAL).read_text().count("dance") == 4


def test_findings_in_the_history_are_bounded(heads: Heads, tmp_path: Path) -> None:
    finding = event("output_judged", rank=0, level="warning", text="x")
    followed(heads, tmp_path, *([finding] * 500))
    with History(tmp_path) as history:
        assert [one.text for one in history.findings("job-000001")] == ["x"] * 4 + [WITHIN]


def test_tables_in_the_history_are_bounded(heads: Heads, tmp_path: Path) -> None:
    facts = {"rank": 0, "collective": "all_reduce"}
    row = {
        **{"size": 8, "count": 2, "dtype": "float", "redop": "sum", "root": -1},
        **{"out_of_place": None, "in_place": None},
    }
    nothing = {"case": 0, "first_rank": 0, "ranks": [], "first_row": 0, "ended_at": None}
    read = [event("table_read", table=n, facts=facts, rows=[row] * 2, **nothing) for n in range(50)]
    followed(heads, tmp_path, *read, limits=Limits(rows=20))
    with History(tmp_path) as history:
        kept = history.tables("job-000001")
        findings = [one.text for one in history.findings("job-000001")]
    assert 0 < sum(len(table.rows) + 1 for table in kept) < 30
    assert findings == ["the run's tables have more than 20 rows: the rest is not kept"]


def test_a_number_that_is_too_large_for_an_offset_is_one_warning(
    heads: Heads, tmp_path: Path
) -> None:
    huge = event("output_dropped", start=0, end=10**400, ranks=[{}])
    seen = followed(heads, tmp_path, huge)
    (warning,) = [one for one in seen if isinstance(one, OutputJudged)]
    assert warning.text.startswith("the head sent a malformed event `output_dropped`")
