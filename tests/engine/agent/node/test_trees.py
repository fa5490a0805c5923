"""Trees of code: from the client to the head, from there to all nodes, and into a run's folder."""

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.errors import InputError
from config.run.sources import folder_sources
from engine.agent.journal.clock import steady
from engine.agent.journal.run_folders import AGE_S, USED, remove_old_runs
from engine.agent.node.code_store import lay_out
from engine.plan.launch_plan import launch_plan
from engine.plan.source_tree import Tree, tree_of
from engine.session.bundle import agent_bundle
from tests.engine.conftest import TOOLS, LocalCluster, make_run
from tests.engine.conftest import make_inventory as inventory_of

pytestmark = pytest.mark.slow

NODES = 7  # the head, four that it serves, and two that those serve


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's."""
    folder = tmp_path / "mine"
    (folder / "data" / "empty").mkdir(parents=True)
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "go.sh").write_text("#!/bin/sh\necho went\n")
    (folder / "go.sh").chmod(0o755)
    (folder / "data" / "copy.py").write_text("print('hello')\n")
    (folder / "data" / "big").write_bytes(os.urandom(3 << 20))
    (folder / "link").symlink_to("data/copy.py")
    (folder / "data").chmod(0o555)
    yield folder
    (folder / "data").chmod(0o755)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The agent of all nodes, whose ssh leads to folders of this machine."""
    monkeypatch.setenv("PATH", f"{TOOLS}:{os.environ['PATH']}")
    archive = tmp_path / "agent.pyz"
    archive.write_bytes(agent_bundle().data)
    with zipfile.ZipFile(archive) as files:
        files.extractall(tmp_path / "agent")
    return tmp_path / "agent"


def runs(tmp_path: Path, rank: int) -> Path:
    return tmp_path / f"node{rank}" / "runs"


def send(tmp_path: Path, agent: Path, tree: Tree, nodes: int = 1, **header: Any) -> list[Any]:
    """Send the tree to the head as the client does; return its answers."""
    onward = [{"name": f"node{r}", "private_ip": f"127.0.0.{r + 10}"} for r in range(1, nodes)]
    values = {"tree": tree.digest, "entries": tree.entries, "node": "node0", "onward": onward}
    with subprocess.Popen(
        [sys.executable, str(agent / "__main__.py"), "receive", str(runs(tmp_path, 0))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({**values, **header}).encode() + b"\n")
        process.stdin.flush()
        first = json.loads(process.stdout.readline())
        for blob in first.get("blobs", ()):
            process.stdin.write(tree.local[blob].read_bytes())
        process.stdin.close()
        return [first, *map(json.loads, process.stdout)]


def listing(folder: Path) -> dict[str, tuple[int, str]]:
    """Each path below the folder: mode, and content or target."""
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.lstat().st_mode),
            str(path.readlink())
            if path.is_symlink()
            else ""
            if path.is_dir()
            else path.read_bytes().hex(),
        )
        for path in sorted(folder.rglob("*"))
    }


def test_a_tree_reaches_every_node_and_is_laid_out_as_it_was(
    code: Path, agent: Path, tmp_path: Path
) -> None:
    tree = tree_of(folder_sources(code))
    first, *rest = send(tmp_path, agent, tree, NODES)
    assert first["kind"] == "missing"
    assert len(first["blobs"]) == 3  # two of the four files have the same content
    assert sorted((one["kind"], one["node"]) for one in rest) == [
        ("received", f"node{rank}") for rank in range(NODES)
    ]
    for rank in range(NODES):
        (held,) = runs(tmp_path, rank).iterdir()  # and nothing that was half written
        assert held.name == f"tree-{tree.digest}"
        work = tmp_path / f"work{rank}"
        work.mkdir()
        lay_out(held, work)
        assert listing(work) == listing(code)


@pytest.mark.parametrize("words", ["Welcome", "a\\nb", '{"kind": "x"}\\n', ""])
def test_words_of_a_login_on_the_way_hide_no_answer(
    words: str, code: Path, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = tmp_path / "login"
    login.mkdir()
    (login / "ssh").write_text(f"#!/bin/sh\nprintf '{words}'\nexec {TOOLS}/ssh \"$@\"\n")
    (login / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{login}:{os.environ['PATH']}")
    _, *rest = send(tmp_path, agent, tree_of(folder_sources(code)), 2)
    assert [answer["kind"] for answer in rest] == ["received", "received"]


def test_only_what_changed_travels(code: Path, agent: Path, tmp_path: Path) -> None:
    before = tree_of(folder_sources(code))
    send(tmp_path, agent, before, 2)
    assert send(tmp_path, agent, before, 2)[0] == {"kind": "missing", "blobs": []}
    (code / "train.py").write_text("print('changed')\n")
    after = tree_of(folder_sources(code))
    changed = next(content for path, _, _, content, _ in after.entries if path == "train.py")
    assert send(tmp_path, agent, after, 2)[0] == {"kind": "missing", "blobs": [changed]}
    assert after.digest != before.digest
    work = tmp_path / "work"
    work.mkdir()
    lay_out(runs(tmp_path, 1) / f"tree-{before.digest}", work)  # the earlier tree is as it was
    assert (work / "train.py").read_text() == "print('hello')\n"


def test_a_job_that_writes_to_its_files_does_not_change_the_tree(
    code: Path, agent: Path, tmp_path: Path
) -> None:
    tree = tree_of(folder_sources(code))
    send(tmp_path, agent, tree)
    held = runs(tmp_path, 0) / f"tree-{tree.digest}"
    for name in ("one", "two"):
        work = tmp_path / name
        work.mkdir()
        lay_out(held, work)
        assert (work / "train.py").read_text() == "print('hello')\n"
        with (work / "train.py").open("a") as file:
            file.write("changed")


def test_a_file_that_changes_while_it_is_sent_leaves_no_tree(
    code: Path, agent: Path, tmp_path: Path
) -> None:
    tree = tree_of(folder_sources(code))
    (code / "train.py").write_text("print('HELLO')\n")
    assert send(tmp_path, agent, tree)[1:] == [
        {"kind": "failed", "node": "node0", "reason": "a file changed while it was sent"}
    ]
    assert list(runs(tmp_path, 0).iterdir()) == []


def test_a_sender_that_dies_leaves_no_tree(code: Path, agent: Path, tmp_path: Path) -> None:
    tree = tree_of(folder_sources(code))
    (code / "data" / "big").write_bytes(b"")
    assert send(tmp_path, agent, tree)[1:] == [
        {
            "kind": "failed",
            "node": "node0",
            "reason": "the sender ended before all files were sent",
        }
    ]
    assert list(runs(tmp_path, 0).iterdir()) == []


def test_a_node_that_cannot_take_the_tree_is_named_with_its_reason(
    code: Path, agent: Path, tmp_path: Path
) -> None:
    (tmp_path / "node2").write_text("in the way")
    tree = tree_of(folder_sources(code))
    answers = send(tmp_path, agent, tree, 3)[1:]
    assert sorted((one["kind"], one["node"], one.get("reason", "")) for one in answers) == [
        ("failed", "node2", "Not a directory"),
        ("received", "node0", ""),
        ("received", "node1", ""),
    ]


def test_a_node_out_of_reach_is_named_with_the_last_words_of_ssh(
    code: Path, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "ssh").write_text("#!/bin/sh\necho 'ssh: no route to host' >&2; exit 255\n")
    (broken / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken}:{os.environ['PATH']}")
    answers = send(tmp_path, agent, tree_of(folder_sources(code)), 2)[1:]
    assert {one["node"]: one.get("reason") for one in answers} == {
        "node0": None,
        "node1": "ssh: no route to host",
    }


def not_used(tree: Path, seconds: float) -> None:
    """Make the tree's last use so long ago."""
    (mark,) = tree.glob(f"{USED}*")
    then = steady() - seconds
    os.utime(mark, (then, then))


def test_the_budget_removes_trees_by_their_last_use(
    code: Path, agent: Path, tmp_path: Path
) -> None:
    tree = tree_of(folder_sources(code))
    send(tmp_path, agent, tree)
    held = runs(tmp_path, 0) / f"tree-{tree.digest}"
    own = runs(tmp_path, 0) / "job-000001"
    not_used(held, AGE_S + 60)
    send(tmp_path, agent, tree)  # it is used again
    remove_old_runs(own)
    assert held.exists()
    not_used(held, AGE_S + 60)
    remove_old_runs(own)
    assert not held.exists()


def test_a_tree_that_was_just_used_stays_on_a_small_disk(
    code: Path, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(folder_sources(code))
    send(tmp_path, agent, tree)
    usage = shutil.disk_usage(tmp_path)._replace(total=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    held = runs(tmp_path, 0) / f"tree-{tree.digest}"
    remove_old_runs(runs(tmp_path, 0) / "job-000001")
    assert held.exists()
    not_used(held, 700)
    remove_old_runs(runs(tmp_path, 0) / "job-000001")
    assert not held.exists()


def test_a_job_starts_in_its_working_folder(cluster: LocalCluster, code: Path, agent: Path) -> None:
    tree = tree_of(folder_sources(code))
    send(cluster.folder, agent, tree)
    shutil.move(runs(cluster.folder, 0) / f"tree-{tree.digest}", cluster.folder)
    run = make_run(
        workdir=".", commands=("python3 train.py; ./go.sh; test $PWD = $GPUCTL_WORKDIR",)
    )
    verdict = cluster.execute(launch_plan(run, inventory_of(2), "job-000001", tree))
    assert verdict.status == "done", cluster.output(0)
    assert [cluster.output(rank) for rank in (0, 1)] == ["hello\nwent\n"] * 2
    for rank in (0, 1):  # what a job wrote stays for its outputs
        assert (cluster.folder / f"node{rank}" / "work" / "go.sh").exists()


def test_a_run_with_outputs_alone_has_an_empty_working_folder(cluster: LocalCluster) -> None:
    run = make_run(outputs=("*.json",), commands=("ls | wc -l; echo {} > done.json",))
    verdict = cluster.execute(launch_plan(run, inventory_of(2), "job-000001"))
    assert verdict.status == "done"
    assert cluster.output(1) == "0\n"
    assert (cluster.folder / "node1" / "work" / "done.json").read_text() == "{}\n"


def test_a_node_without_the_tree_cannot_run_the_job(cluster: LocalCluster, code: Path) -> None:
    tree = tree_of(folder_sources(code))
    plan = launch_plan(make_run(workdir="."), inventory_of(2), "job-000001", tree)
    verdict = cluster.execute(plan)
    assert verdict.status == "failed"
    assert f"tree-{tree.digest}" in verdict.reason


def test_an_unreadable_file_is_named(code: Path) -> None:
    sources = list(folder_sources(code))
    (code / "train.py").unlink()
    with pytest.raises(InputError, match=r"train\.py cannot be read: No such file or directory"):
        tree_of(sources)
