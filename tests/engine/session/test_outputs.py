"""Outputs come back from nodes (sshd on loopback) that are not trusted."""

import asyncio
import json
import os
import shlex
import shutil
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from config.progress import silent
from engine.agent.node.outputs import matches
from engine.contract.plan import LaunchPlan
from engine.plan.launch_plan import launch_plan
from engine.session.bundle import agent_bundle
from engine.session.outputs import Fetched, fetch_outputs
from tests.engine.conftest import make_run
from tests.nodes.conftest import Site
from tests.nodes.conftest import site as site  # noqa: PLC0414  a fixture

pytestmark = pytest.mark.slow

PATTERNS = ("checkpoints/", "*.json", "logs/**/*.txt")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of both nodes, on this machine."""
    work = tmp_path / "work"
    (work / "checkpoints" / "last").mkdir(parents=True)
    (work / "checkpoints" / "last" / "model").write_bytes(b"\0" * (3 << 20) + b"end")
    (work / "checkpoints" / "newest").symlink_to("last/model")
    (work / "checkpoints" / "out").symlink_to("/etc/passwd")
    (work / "result.json").write_text("{}")
    (work / "result.json").chmod(0o4755)
    (work / "train.py").write_text("")
    (work / "logs" / "a" / "b").mkdir(parents=True)
    (work / "logs" / "a" / "b" / "c.txt").write_text("c")
    (tmp_path / "agent.pyz").write_bytes(agent_bundle().data)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return work


def plan_of(site: Site, *patterns: str) -> LaunchPlan:
    return launch_plan(make_run(outputs=patterns), site.inventory, "job-000001")


def fetched(site: Site, to: Path, *patterns: str, program: str = "agent.pyz") -> Fetched:
    """Fetch to the folder what a program next to it sends of the nodes' working folder."""
    return fetch(site, plan_of(site, *patterns), to, program)


def fetch(site: Site, plan: LaunchPlan, to: Path, program: str = "agent.pyz") -> Fetched:
    words = [sys.executable, "-IS", str(to.with_name(program)), "outputs"]
    command = shlex.join([*words, str(to.with_name("work"))])
    fetching = fetch_outputs(plan, site.inventory, to, silent, command)
    return asyncio.run(asyncio.wait_for(fetching, 60))


def names(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(str(path.relative_to(folder)) for path in found)


def test_what_the_patterns_match(work: Path) -> None:
    assert [item[0] for item in matches(work, list(PATTERNS))] == [
        *("checkpoints", "checkpoints/last", "checkpoints/last/model", "checkpoints/newest"),
        *("checkpoints/out", "logs/a/b/c.txt", "result.json"),
    ]
    assert matches(work, ["nothing", "nothing/*"]) == []
    assert matches(work / "nothing", ["*"]) == []
    assert len(matches(work, ["."])) == 11


def test_outputs_of_each_rank_come_back(site: Site, work: Path, tmp_path: Path) -> None:
    got = fetched(site, tmp_path / "to", *PATTERNS)
    assert (got.files, got.failures) == (6, ())
    assert got.refused == tuple(
        f"node{rank}: not copied: checkpoints/out (a link to /etc/passwd, which is outside)"
        for rank in (0, 1)
    )
    assert got.size == 2 * ((3 << 20) + 3 + 2 + 1)
    for rank in (0, 1):
        folder = tmp_path / "to" / f"rank-{rank}"
        assert names(folder) == [
            *("checkpoints/last/model", "checkpoints/newest", "logs/a/b/c.txt", "result.json")
        ]  # and no link to /etc/passwd
        assert (folder / "checkpoints" / "newest").read_bytes()[-3:] == b"end"
        assert stat.S_IMODE((folder / "result.json").stat().st_mode) == 0o700  # and no setuid
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == [
        *(".gitignore", "rank-0", "rank-1")
    ]


def test_nothing_that_matches_makes_no_folder(site: Site, work: Path, tmp_path: Path) -> None:
    got = fetched(site, tmp_path / "to", "*.none")
    assert (got.files, got.size, got.failures) == (0, 0, ())
    assert not (tmp_path / "to").exists()


def test_outputs_that_do_not_fit_say_so(
    site: Site, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=(1 << 30) + (2 << 20))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    to = tmp_path / "to"
    got = fetched(site, to, *PATTERNS)
    assert got.failures == tuple(
        f"the outputs of node{rank} have 3 MiB, the disk of {to} has room for 2 MiB"
        for rank in (0, 1)
    )
    assert any(to.glob("*.part")), "the next client fetches them again"


def test_a_folder_that_cannot_be_made_is_a_failure_of_each_node(
    site: Site, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "to").write_text("a file")
    got = fetched(site, tmp_path / "to", "result.json")
    assert got.failures == tuple(
        f"the outputs of node{rank} cannot be written to {tmp_path / 'to'}/rank-{rank}.part:"
        " File exists"
        for rank in (0, 1)
    )


def test_a_node_that_fails_does_not_stop_the_others(site: Site, work: Path, tmp_path: Path) -> None:
    site.nodes[1].stop()
    got = fetched(site, tmp_path / "to", "result.json")
    assert got.files == 1
    (failure,) = got.failures
    assert failure.startswith("node1 (127.0.0.1) cannot be reached")


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a\0b"])
def test_a_path_that_leaves_the_folder_is_refused(
    site: Site, work: Path, tmp_path: Path, path: str
) -> None:
    bad = tmp_path / "bad.py"
    line = json.dumps({"files": [[path, "file", 0o644, "", 1]]})
    bad.write_text(f"print({line!r}); print('x')")
    got = fetched(site, tmp_path / "to", "x", program="bad.py")
    assert got.failures == tuple(
        f"node{rank} sent an output with the path {path!r}" for rank in (0, 1)
    )
    assert not (tmp_path / "to").exists()


PACK = "pack them on the node (tar), and name the archive in `outputs`"
HEADERS = {
    "no JSON": ("'no'", "sent no list of outputs"),
    "another JSON": ("'[]'", "sent no list of outputs"),
    "nested JSON": ("'[' * 200000", "sent no list of outputs"),
    "endless": ("'x' * (17 << 20)", f"sent a list of outputs of more than 16 MiB; {PACK}"),
    "many files": (
        '\'{"files": [%s]}\' % ",".join(100001 * [\'["a", "file", 1, "", 1]\'])',
        f"sent a list of more than 100000 outputs; {PACK}",
    ),
    "many values": (
        '\'{"files": [%s]}\' % ",".join(5000000 * ["1"])',
        f"sent a list of more than 100000 outputs; {PACK}",
    ),
    "deep": (
        '\'{"files": [["%s", "file", 1, "", 1]]}\' % ("a/" * 2000)',
        f"sent an output whose path has 2000 parts, at most 64 are allowed: '{'a/' * 48}a...'",
    ),
    "size": ('\'{"files": [["a", "file", 1, "", 1e999]]}\'', "sent no list of outputs"),
    "large size": (
        '\'{"files": [["a", "file", 1, "", %s]]}\' % 10**400',
        "sent no list of outputs",
    ),
    "kind": ('\'{"files": [["a", "fifo", 1, "", 1]]}\'', "sent no list of outputs"),
    "mode": ('\'{"files": [["a", "file", "x", "", 1]]}\'', "sent no list of outputs"),
    "no path": ('\'{"files": [[7, "file", 1, "", 1]]}\'', "sent no list of outputs"),
    "no name": (
        r"""'{"files": [["a", "link", 1, "\\ud800", 1]]}'""",
        "sent an output with the path 'a'",
    ),
}


@pytest.mark.parametrize("case", HEADERS)
def test_hostile_list_of_outputs_is_refused_and_writes_nothing(
    site: Site, work: Path, tmp_path: Path, case: str
) -> None:
    bad = tmp_path / "bad.py"
    header, message = HEADERS[case]
    bad.write_text(f"print({header})")
    got = fetched(site, tmp_path / "to", "x", program="bad.py")
    assert got.failures == tuple(f"node{rank} {message}" for rank in (0, 1))
    assert not (tmp_path / "to").exists()


def test_node_that_the_cluster_does_not_have_is_a_failure(
    site: Site, work: Path, tmp_path: Path
) -> None:
    plan = plan_of(site, "result.json")
    first, other = plan.nodes
    plan = replace(plan, nodes=(first, replace(other, name="node7")))
    got = fetch(site, plan, tmp_path / "to")
    assert got.files == 1
    assert got.failures == (
        f"cluster {site.inventory.cluster} has no node node7, which the run names",
    )
