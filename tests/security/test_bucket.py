"""A team's bucket: whoever may write there writes anything; gpuctl believes what it checks.

Each hostile object is written beside those of Anna's run that is over. Ben lists, reads and ends
runs; nothing of his is removed, changed or run, and each wrong object is one warning.
"""

import gzip
import io
import json
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.output import Output
from config.errors import InputError
from config.target import Target
from engine.record.history import History, RunRecord
from operations.chosen_target import ChosenTarget
from operations.shared_runs import share_ended_run
from provision.state.store import ClusterStore
from tests.cli.conftest import healthy as healthy  # noqa: PLC0414
from tests.cli.conftest import is_removed
from tests.cli.conftest import remembered as remembered  # noqa: PLC0414  fixtures
from tests.cli.test_attach import detached as detached  # noqa: PLC0414
from tests.cli.test_attach import going as going  # noqa: PLC0414
from tests.cli.test_run import cluster as cluster  # noqa: PLC0414
from tests.cli.test_run import gpuctl_run as gpuctl_run  # noqa: PLC0414
from tests.cli.test_run import rented as rented  # noqa: PLC0414
from tests.cli.test_shared_journals import RUN, Team, done, finish, follow
from tests.engine.conftest import make_inventory
from tests.engine.session.test_session import connections as connections  # noqa: PLC0414
from tests.infra.region import CREDENTIALS
from tests.provision.test_record import a_record

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

JSON = dict[str, object]


@pytest.fixture
def team(tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch) -> Team:
    return Team(tmp_path, target, monkeypatch)


@pytest.fixture
def ended(team: Team) -> Team:
    """Anna's run has ended, and Anna has listed her runs."""
    follow(team.runs("anna"))
    finish(team.runs("anna"), done)
    assert team("anna", "ps").exit_code == 0
    return team


def run_json(team: Team, **changes: object) -> str:
    """Return Anna's run as its object has it, with these changes."""
    values: JSON = {**team.find("anna").model_dump(mode="json"), **changes}
    return json.dumps({name: value for name, value in values.items() if value != "left out"})


def put(team: Team, key: str, text: str) -> None:
    team.objects.write(f"gpuctl/{key}", text, None)


def warnings(team: Team, stderr: str) -> list[str]:
    return [
        line.removeprefix(f"gpuctl: warning: {team.url}/gpuctl/") for line in stderr.splitlines()
    ]


PATTERN = "String should match pattern '^[a-z][a-z0-9-]{0,40}-[0-9a-f]{6}$'"
NO_KEY = "its key is not `RUN/begin` or `RUN/end` of a run's id"
OBJECTS: dict[str, tuple[JSON, str]] = {
    "an id that leads out": ({"run_id": "../../x"}, f"run_id: {PATTERN}"),
    "an id of a shell": ({"run_id": "a;id>x-000000"}, f"run_id: {PATTERN}"),
    "an id with a line": ({"run_id": "x-000000\nx"}, f"run_id: {PATTERN}"),
    "another run's id": ({"run_id": "other-000001"}, "it is of run other-000001"),
    "a cluster that leads out": (
        {"cluster": "../.."},
        "cluster: String should match pattern '^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$'",
    ),
    "a time without a zone": (
        {"started": "2026-11-20T19:00:00"},
        "started: Input should have timezone info",
    ),
    "an end without a zone": (
        {"ended": "2026-11-20T19:00:00"},
        "ended: Input should have timezone info",
    ),
    "a time to come": (
        {"started": "9998-01-01T00:00:00Z"},
        "it has started at 9998-01-01 00:00 UTC, which is to come",
    ),
    "no end": ({"ended": None}, "it is over, and has no exit code or no end"),
    "not over": ({"status": "running"}, "its status is running"),
    "a missing field": ({"name": "left out"}, "name: Field required"),
    "a number beyond SQLite's": (
        {"nodes": 10**30},
        f"nodes: Input should be less than or equal to {(1 << 63) - 1}",
    ),
    "an exit code beyond a byte": (
        {"exit_code": 10**9},
        "exit_code: Input should be less than or equal to 256",
    ),
    "costs without end": (
        {"cost_usd": 1e308},
        "cost_usd: Input should be less than or equal to 1000000000000",
    ),
}


@pytest.mark.parametrize("case", OBJECTS)
def test_a_wrong_run_in_the_bucket_is_one_warning_with_its_key(ended: Team, case: str) -> None:
    changes, why = OBJECTS[case]
    put(ended, "runs/zzz-00000f/end", run_json(ended, **{"run_id": "zzz-00000f", **changes}))
    listed = ended("ben", "ps", "--json")
    assert listed.exit_code == 0
    assert warnings(ended, listed.stderr) == [f"runs/zzz-00000f/end is left out: {why}"]
    assert [run["run_id"] for run in json.loads(listed.stdout)] == [RUN]


TEXTS = {
    "empty": ("", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
    "no JSON": ("no", "Invalid JSON: expected ident at line 1 column 2"),
    "a list": ("[]", "Input should be an object"),
    "huge": (f'{{"x": "{"x" * (1 << 20)}"}}', "it has more than 1 MiB"),
    "nested": (
        "[" * 100_000,
        "Invalid JSON: recursion limit exceeded at line 1 column 202",
    ),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_that_is_no_run_is_one_warning_with_its_key(ended: Team, case: str) -> None:
    text, why = TEXTS[case]
    put(ended, "runs/zzz-00000f/begin", text)
    listed = ended("ben", "ps")
    assert listed.exit_code == 0
    assert warnings(ended, listed.stderr) == [f"runs/zzz-00000f/begin is left out: {why}"]
    assert listed.stdout.count("\n") == 2


def test_bytes_that_are_no_text_are_one_warning(ended: Team, tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"\xff\xfe\x00")
    ended.objects.write_file("gpuctl/runs/zzz-00000f/end", file)
    listed = ended("ben", "ps")
    assert warnings(ended, listed.stderr) == [
        "runs/zzz-00000f/end is left out: it is no text in UTF-8"
    ]


@pytest.mark.parametrize(
    "name",
    ["../../x/end", "x/end", "zzz-00000f/middle", "zzz-00000f", "zzz-00000f/end/more", "/end"],
)
def test_a_key_that_is_no_runs_is_one_warning(ended: Team, name: str) -> None:
    put(ended, f"runs/{name}", run_json(ended))
    listed = ended("ben", "ps")
    assert listed.exit_code == 0
    assert warnings(ended, listed.stderr) == [f"runs/{name} is left out: {NO_KEY}"]


def test_a_wrong_end_does_not_hide_the_beginning(team: Team) -> None:
    follow(team.runs("anna"), to=1)
    assert team("anna", "ps").exit_code == 0
    put(team, f"runs/{RUN}/end", "{}")
    listed = team("ben", "ps", "--json")
    assert [run["status"] for run in json.loads(listed.stdout)] == ["running"]
    assert warnings(team, listed.stderr) == [f"runs/{RUN}/end is left out: run_id: Field required"]


def test_of_many_wrong_objects_twenty_are_named(ended: Team) -> None:
    for number in range(23):
        put(ended, f"runs/zzz-0000{number:02}/end", "{}")
    lines = ended("ben", "ps").stderr.splitlines()
    assert len(lines) == 21
    assert lines[-1] == f"gpuctl: warning: 3 more objects of {ended.url} are left out"


def test_an_end_moves_no_run_of_this_machine_to_another_cluster(team: Team) -> None:
    follow(team.runs("ben"), to=1)
    ours = team.find("ben")
    claim = {
        **ours.model_dump(mode="json"),
        **{"cluster": "trap", "status": "done", "exit_code": 0, "ended": "2026-11-20T19:00:00Z"},
        "on_stop": "destroy",
    }
    put(team, f"runs/{RUN}/end", json.dumps(claim))
    listed = team("ben", "ps")
    assert warnings(team, listed.stderr)[0] == (
        f"runs/{RUN}/end is left out: it is job on cluster trap, this machine knows the run as job"
        " on cluster demo"
    )
    assert team.find("ben").cluster == "demo"
    assert not team.find("ben").is_over


def test_an_end_does_not_change_what_follows_the_runs_end(team: Team) -> None:
    follow(team.runs("ben"), to=1)
    ended = {"status": "done", "exit_code": 0, "ended": "2026-11-20T19:00:00Z"}
    claim = {**team.find("ben").model_dump(mode="json"), **ended, "on_stop": "destroy"}
    put(team, f"runs/{RUN}/end", json.dumps({**claim, "head_id": "i-0bad"}))
    assert team("ben", "ps").exit_code == 0
    run = team.find("ben")
    assert (run.status, run.on_stop, run.head_id) == ("done", "keep", "")


def foreign_journal(team: Team, name: str, data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "object"
    file.write_bytes(data)
    key = f"gpuctl/journals/{RUN}/{name}"
    team.objects.remove(key)
    team.objects.write_file(key, file)


STRANGER = (
    '{"kind": "run_started", "time": 1, "run_id": "other-000001", "name": "other",'
    ' "cluster": "demo", "startup_order": "any", "stop_criteria": "all-done", "on_stop": "keep",'
    ' "nodes": []}\n'
)
JOURNALS = {
    "another run's": (
        "journal.jsonl",
        STRANGER.encode(),
        f"/{RUN}/journal.jsonl is damaged: it is of run other-000001;",
    ),
    "no JSON": ("journal.jsonl", b"no\n", f"/{RUN}/journal.jsonl is damaged: Expecting value"),
    "nested": (
        "journal.jsonl",
        b"[" * 100_000 + b"\n",
        f"/{RUN}/journal.jsonl is damaged: it is nested too deep;",
    ),
    "a bomb": (
        "journal-000000000000100.jsonl.gz",
        gzip.compress(b"x" * (33 << 20)),
        f"/{RUN}/journal.jsonl is damaged: it has a line of more than 32 MiB;",
    ),
    "no gzip": (
        "journal-000000000000100.jsonl.gz",
        b"no gzip",
        f"/{RUN}/journal.jsonl is damaged: Not a gzipped file",
    ),
    "a setting": ("setting.json", b"[]", "/setting.json is left out: Input should be an object"),
    "a huge setting": (
        "setting.json",
        b" " * (1 << 21),
        "/setting.json is left out: it has more than 1 MiB",
    ),
}


@pytest.mark.parametrize("case", JOURNALS)
def test_a_wrong_journal_is_one_warning_and_changes_nothing_here(
    ended: Team, tmp_path: Path, case: str
) -> None:
    name, data, why = JOURNALS[case]
    follow(ended.runs("ben"), to=1)
    before = (ended.runs("ben") / RUN / "journal.jsonl").read_bytes()
    foreign_journal(ended, name, data, tmp_path)
    printed = ended("ben", "logs", RUN)
    assert printed.exit_code == 0
    assert printed.stdout == "[node0] begins\n"
    fetching, warning, *_ = printed.stderr.splitlines()  # then: the log ends early
    assert fetching == f"gpuctl: fetching the log of run {RUN} from {ended.url}"
    start = f"gpuctl: warning: the log of run {RUN} did not come from the bucket: "
    assert warning.startswith(start)
    assert why in warning
    assert (ended.runs("ben") / RUN / "journal.jsonl").read_bytes() == before
    with History(ended.runs("ben")) as history:
        assert [run.run_id for run in history.runs()] == [RUN]


@pytest.mark.parametrize(
    "name",
    [
        *("outputs/rank-0/model", "runs.sqlite", "../../x", "/tmp/x", "evidence/../../x.txt"),
        *("evidence/node0/.x.txt", "evidence/node0/x", "journal-1.jsonl", "id_ed25519", "a b"),
    ],
)
def test_an_object_that_gpuctl_does_not_write_is_not_taken(ended: Team, name: str) -> None:
    put(ended, f"journals/{RUN}/{name}", "hostile")
    assert ended("ben", "logs", RUN).exit_code == 0
    files = [path for path in ended.runs("ben").parents[3].rglob("*") if path.is_file()]
    assert [path for path in files if b"hostile" in path.read_bytes()] == []


def test_no_file_of_a_run_is_read_or_written_through_a_link(ended: Team, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"kind": "output"}\n')
    folder = ended.runs("ben") / RUN
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "keep").write_text("")
    listed = ended("ben", "ps", "--prune", "--older-than", "1s", "--yes")
    assert listed.exit_code == 1
    assert str(listed.exception) == (
        f"'{folder}' leads out of {folder.parent}; gpuctl makes no links there: remove it"
    )
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["keep"]


def test_a_record_of_this_machine_that_is_none_is_one_line(ended: Team) -> None:
    with History(ended.runs("ben")) as history:
        history.adopt(RunRecord.model_validate_json(run_json(ended)))
        history.adopt(
            RunRecord.model_validate_json(run_json(ended)).model_copy(update={"run_id": "../x"})
        )
    listed = ended("ben", "ps")
    assert listed.exit_code == 1
    assert str(listed.exception) == (
        f"{ended.runs('ben')}/runs.sqlite has a run '../x' that is none: run_id: {PATTERN};"
        " move the file away; gpuctl then starts a new history"
    )


@dataclass(frozen=True)
class Unusable(ChosenTarget):
    """A member whose bucket does what no bucket should."""

    error: BaseException = field(default_factory=lambda: RuntimeError("no such thing"))

    def remembered(self) -> Target:
        raise self.error


def test_whatever_fails_while_a_run_is_shared_is_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    share_ended_run(Unusable(backend="s3://team"), watcher=Output().progress())
    assert capsys.readouterr().err == (
        "gpuctl: warning: the run is not shared yet: RuntimeError: no such thing; the next"
        " `gpuctl ps` shares it\n"
    )


def test_ctrl_c_while_a_run_is_shared_changes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupted = Unusable(backend="s3://team", error=KeyboardInterrupt())
    share_ended_run(interrupted, watcher=Output().progress())
    assert capsys.readouterr().err == (
        "gpuctl: warning: the run is not shared yet: interrupted; the next `gpuctl ps` shares it\n"
    )


def test_a_run_ends_with_its_code_and_removes_its_cluster_whatever_the_bucket_has(
    going: str,
    rented: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared: list[bool] = []

    def share(*_: object) -> None:
        shared.append(is_removed(rented))
        raise RuntimeError("no such thing")

    monkeypatch.setattr("operations.shared_runs.share_runs", share)
    done = CliRunner().invoke(app, ["attach", going])
    assert done.exit_code == 0
    assert shared == [True], "the cluster is removed before"
    assert "gpuctl: warning: the run is not shared yet: RuntimeError" in done.stderr


def test_a_slow_bucket_is_one_warning_after_its_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = threading.Event()
    monkeypatch.setattr("operations.shared_runs.share_runs", lambda *_: answers.wait())
    share_ended_run(Unusable(backend="s3://team"), limit_s=0.1, watcher=Output().progress())
    answers.set()
    assert capsys.readouterr().err == (
        "gpuctl: warning: the run is not shared yet: s3://team did not take it within 0.1 s; the"
        " next `gpuctl ps` shares it\n"
    )


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_runs_result_is_printed_before_the_bucket_is_asked(
    going: str,
    rented: Target,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
) -> None:
    printed: list[str] = []

    def share(*_: object) -> None:
        stream = sys.stdout.buffer
        assert isinstance(stream, io.BytesIO)
        printed.append(stream.getvalue().decode())

    monkeypatch.setattr("operations.shared_runs.share_runs", share)
    done = CliRunner().invoke(app, ["attach", going, *more])
    assert (done.exit_code, is_removed(rented)) == (0, True)
    assert printed == [done.stdout], "nothing is printed after it"
    assert ("Cluster demo is gone" in done.stdout) is not bool(more)


RECORDS = {
    "no JSON": ("cluster.json", "no", "Invalid JSON: expected ident at line 1 column 2"),
    "another name": (
        "cluster.json",
        '{"name": "prod", "resolved": {"tags": {}}}',
        "it is of cluster prod",
    ),
    "a name that leads out": (
        "cluster.json",
        '{"name": "../x", "resolved": {"tags": {}}}',
        "name: String should match pattern '^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$'",
    ),
    "half of one": (
        "cluster.json",
        '{"name": "demo", "resolved": {"tags": {}}}',
        "region: Field required",
    ),
    "huge": ("cluster.json", " " * (2 << 20), "it has more than 1 MiB"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_wrong_record_is_one_line_and_other_clusters_are_listed(team: Team, case: str) -> None:
    file, text, why = RECORDS[case]
    there = Target(
        "aws", "us-east-1", team.runs("ben").parent, environment=CREDENTIALS, backend=team.backend
    )
    ClusterStore(there).write(a_record("good").now("ready"))
    put(team, f"clusters/demo/{file}", text)
    assert [known.name for known in ClusterStore(there).records()] == ["good"]
    (wrong,) = ClusterStore(there).errors()
    assert str(wrong) == (
        f"{team.url}/gpuctl/clusters/demo/{file} of cluster 'demo' is malformed: {why}; somebody"
        " else has written it: restore an earlier version, or remove it; `gpuctl down demo` then"
        " finds the cluster by its tags and removes it"
    )


@pytest.mark.parametrize(
    "keys",
    [
        "@cert-authority * ssh-ed25519 AAAA\n",
        "@revoked * ssh-ed25519 AAAA\n",
        "node0 ssh-ed25519\n",
        "-oProxyCommand=id ssh-ed25519 AAAA\n",
        "|1|a|b ssh-ed25519 AAAA\n",
    ],
)
def test_host_keys_with_markers_are_refused(team: Team, keys: str) -> None:
    there = Target(
        "aws", "us-east-1", team.runs("ben").parent, environment=CREDENTIALS, backend=team.backend
    )
    ClusterStore(there).write(a_record("demo").now("ready"))
    put(team, "clusters/demo/inventory.json", make_inventory(2).model_dump_json())
    put(team, "clusters/demo/known_hosts", keys)
    with pytest.raises(InputError) as refused:
        ClusterStore(there).inventory("demo")
    assert refused.value.message == (
        f"{team.url}/gpuctl/clusters/demo/known_hosts of cluster 'demo' is malformed: a line is not"
        " `HOST TYPE KEY`"
    )


EVIL = ["sh", "-c", "touch evil"]


@pytest.mark.parametrize(
    "proxies", [[EVIL, []], [[], EVIL], [["true"], EVIL]], ids=["head", "other node", "all"]
)
def test_an_inventory_of_the_bucket_brings_no_command_of_a_node(
    team: Team, proxies: list[list[str]]
) -> None:
    """The machine that reaches a node runs its `proxy`: clusters of `hosts` have one."""
    there = Target(
        "aws", "us-east-1", team.runs("ben").parent, environment=CREDENTIALS, backend=team.backend
    )
    ClusterStore(there).write(a_record("demo").now("ready"))
    inventory = make_inventory(2).model_dump(mode="json")
    for node, proxy in zip(inventory["nodes"], proxies, strict=True):
        node["proxy"] = proxy
    put(team, "clusters/demo/inventory.json", json.dumps(inventory))
    with pytest.raises(InputError) as refused:
        ClusterStore(there).inventory("demo")
    assert refused.value.message == (
        f"{team.url}/gpuctl/clusters/demo/inventory.json of cluster 'demo' is malformed: nodes that"
        " gpuctl rents have no command (`proxy`)"
    )


def test_the_command_of_all_nodes_is_this_machines(team: Team) -> None:
    there = Target(
        "aws", "us-east-1", team.runs("ben").parent, environment=CREDENTIALS, backend=team.backend
    )
    ClusterStore(there).write(a_record("demo").now("ready"))
    inventory = make_inventory(2).model_dump(mode="json")
    put(team, "clusters/demo/inventory.json", json.dumps({**inventory, "proxy": EVIL}))
    assert ClusterStore(there).inventory("demo").proxy == ()
    ours = replace(there, session_proxy=("gpuctl", "ssm-proxy"))
    assert ClusterStore(ours).inventory("demo").proxy == ("gpuctl", "ssm-proxy")


def test_a_lock_that_is_none_holds_the_cluster_and_says_how_to_remove_it(team: Team) -> None:
    there = Target(
        "aws", "us-east-1", team.runs("ben").parent, environment=CREDENTIALS, backend=team.backend
    )
    ClusterStore(there).write(a_record("demo").now("ready"))
    put(team, "clusters/demo/lock", "no")
    assert ClusterStore(there).is_locked("demo")
    with pytest.raises(InputError) as refused, ClusterStore(there).lock("demo", "gpuctl up"):
        pass
    assert str(refused.value) == (
        "cluster 'demo' is locked by an object that is no lock: Invalid JSON: expected ident at"
        " line 1 column 2; if nobody changes the cluster, remove it:"
        f" `aws s3 rm {team.url}/gpuctl/clusters/demo/lock`"
    )
