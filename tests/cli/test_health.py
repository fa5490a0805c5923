"""`gpuctl health` as people see it; the check itself is in tests/provision/health."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from config.target import Target
from engine.contract.names import QUEUE
from infra.fleet import OUTPUT, Fleet, FleetNode
from infra.stack.installation import VERSION
from nodes.inventory import Inventory, Node
from provision.health.model import Finding, Severity
from provision.state.store import ClusterStore
from tests.cli.conftest import remember
from tests.engine.agent.head.test_queue import holding
from tests.engine.conftest import make_inventory, unpacked_agent
from tests.engine.session.test_session import (
    LocalConnections,
    connections,  # noqa: F401  a fixture
)
from tests.infra.region import CREDENTIALS
from tests.provision.test_record import a_record
from tests.terminals import lines_on_terminal


def finding(node: str, severity: Severity, subject: str = "GPUs") -> Finding:
    return Finding(
        rule="gpus", node=node, subject=subject, expected="8", seen="7", severity=severity,
        remedy="replace it", source="somebody",
    )  # fmt: skip


@pytest.fixture
def found(remembered: Target, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the rules find in a cluster of three nodes."""
    remember(make_inventory(3), remembered)
    findings: list[Finding] = []

    async def check(*_: object, **__: object) -> tuple[Finding, ...]:
        return tuple(findings)

    monkeypatch.setattr("provision.setup.node_health.full_check", check)
    return findings


def health(*words: str, code: int) -> str:
    done = CliRunner().invoke(app, ["health", "demo", *words])
    assert done.exit_code == code, done.output
    return done.stdout


def test_nodes_without_a_finding(found: list[Finding]) -> None:
    assert health(code=0) == "demo: 3 nodes, all fit for jobs\n"


def test_equal_findings_share_a_row_and_the_gravest_come_first(found: list[Finding]) -> None:
    found += [finding("node0", "watch", "persistence"), finding("node1", "isolate")]
    found.append(finding("node2", "isolate"))
    assert health(code=1).splitlines() == [
        "SEVERITY  NODE       FOUND, REMEDY, SOURCE",
        "isolate   node[1-2]  GPUs: expected 8, actual 7",
        "                     replace it",
        "                     source: somebody",
        "watch     node0      persistence: expected 8, actual 7",
        "                     replace it",
        "                     source: somebody",
        "demo: 3 nodes, not fit for jobs: node[1-2]",
    ]


def test_findings_on_a_narrow_terminal_are_wrapped_before_a_column_is_left_out(
    found: list[Finding],
) -> None:
    remedy = "`gpuctl heal` replaces the node, or takes your own machine out of service"
    found.append(finding("node1", "isolate").model_copy(update={"remedy": remedy}))
    assert health(code=1).splitlines()[2] == f"{'':<17}{remedy}"
    assert lines_on_terminal("health", "demo") == [
        "SEVERITY  NODE   FOUND, REMEDY, SOURCE",
        "isolate   node1  GPUs: expected 8, actual 7",
        "                 `gpuctl heal` replaces the node, or takes your own machine out",
        "                 of service",
        "                 source: somebody",
        "demo: 3 nodes, not fit for jobs: node1",
    ]
    assert lines_on_terminal("health", "demo", columns=50)[:3] == [
        "NODE   FOUND, REMEDY, SOURCE",
        "node1  GPUs: expected 8, actual 7",
        "       `gpuctl heal` replaces the node, or takes",
    ]


def test_what_is_for_watching_leaves_nodes_fit(found: list[Finding]) -> None:
    found.append(finding("node0", "watch"))
    assert health(code=0).splitlines()[-1] == "demo: 3 nodes, all fit for jobs"


def test_json(found: list[Finding]) -> None:
    found.append(finding("node1", "reset"))
    document = json.loads(health("--json", code=1))
    assert (document["nodes"], document["unfit"]) == (["node0", "node1", "node2"], ["node1"])
    assert {"gpus", "clock"} <= set(document["rules"])
    assert document["findings"] == [
        {
            "rule": "gpus", "node": "node1", "subject": "GPUs", "expected": "8", "seen": "7",
            "severity": "reset", "remedy": "replace it", "source": "somebody",
        }
    ]  # fmt: skip


@pytest.fixture
def replaced(
    connections: LocalConnections,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """The names of nodes that `heal` replaced; no run is on the cluster."""
    names: list[str] = []

    def replace(_: str, nodes: list[Node], *__: object) -> Inventory:
        names.extend(node.name for node in nodes)
        anew = [
            n.model_copy(update={"instance_id": f"i-9{n.rank}"}) for n in make_inventory(3).nodes
        ]
        return make_inventory(3).model_copy(update={"nodes": tuple(anew)})

    monkeypatch.setattr("provision.healing.replace_nodes", replace)
    return names


def heal(*words: str) -> Result:
    return CliRunner().invoke(app, ["heal", "demo", *words, "--quiet"])


def test_heal_replaces_what_is_not_fit(found: list[Finding], replaced: list[str]) -> None:
    found += [finding("node0", "watch"), finding("node2", "isolate"), finding("node2", "reset")]
    assert heal("--yes").stdout == "node2: i-3 is replaced by i-92\n"
    assert replaced == ["node2"]


def test_heal_warns_before_it_replaces_the_head(found: list[Finding], replaced: list[str]) -> None:
    done = heal("node0", "node1", "--yes")
    assert "node0 is the head: what runs left there is lost with it" in done.stderr
    assert "is the head" not in heal("node1", "--yes").stderr
    assert replaced == ["node0", "node1", "node1"]


def test_a_cluster_whose_up_failed(
    found: list[Finding],
    replaced: list[str],
    remembered: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pulumi's state has its nodes; there is no inventory yet."""
    failed = a_record("demo").now("failed", "node1 (10.0.0.1): GPUs: expected 8, actual 7")
    ClusterStore(remembered).write(failed)
    (ClusterStore(remembered).folder("demo") / "inventory.json").unlink()
    names = ("node0", "node1")
    fleet = Fleet(
        vpc_id="", subnet_id="", bastion_id="", bastion_address="",
        nodes=tuple(FleetNode(name=n, instance_id=f"i-{n}", private_ip="10.0.0.1") for n in names),
    )  # fmt: skip
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    outputs, engine = tmp_path / "outputs.json", tmp_path / "pulumi"
    engine.write_text(
        "#!/bin/sh\n"
        f'case "$*" in version) echo v{VERSION};; *"stack output"*) cat {outputs};; esac\n'
    )
    engine.chmod(0o755)
    monkeypatch.setenv("GPUCTL_PULUMI", str(engine))
    outputs.write_text(json.dumps({OUTPUT: fleet.model_dump(mode="json")}))
    found.append(finding("node1", "isolate"))
    done = CliRunner().invoke(app, ["health", "demo"])
    assert done.stderr == (
        "gpuctl: warning: the last `gpuctl up` of demo failed (node1 (10.0.0.1): GPUs: expected 8,"
        " actual 7); another `gpuctl up` or `gpuctl heal` makes it ready\n"
    )
    assert done.stdout.splitlines()[-1] == "demo: 2 nodes, not fit for jobs: node1"
    assert str(CliRunner().invoke(app, ["health", "demo", "--deep"]).exception) == (
        "cluster demo is not ready, and --deep runs jobs on it; check it without --deep, or repeat"
        " `gpuctl up` first"
    )
    assert heal("--yes").stdout == "node1: i-node1 is replaced by i-91\n"
    assert replaced == ["node1"]

    outputs.write_text("{}")
    assert str(heal("--yes").exception) == (
        "cluster 'demo' is not ready: its record says failed; `gpuctl up` finishes it,"
        " `gpuctl down demo` removes it"
    )


def test_heal_without_anything_to_do(found: list[Finding], replaced: list[str]) -> None:
    assert heal("--yes").stdout == "demo: all nodes are fit for jobs\n"
    assert replaced == []


def test_heal_asks_and_leaves_a_cluster_with_a_run(
    found: list[Finding],
    replaced: list[str],
    connections: LocalConnections,  # noqa: F811
) -> None:
    assert str(heal("node1").exception) == (
        "there is no terminal to ask on: Terminate node1 (i-2) of cluster demo, and make it again?;"
        " add --yes if that is what you want"
    )
    folder = connections.run_folder("job-000001")
    with holding(folder):
        (folder / "agent.pyz").symlink_to(unpacked_agent())
        (folder.parent / QUEUE).write_text("job-000001 started node0\n")
        refused = heal("node1", "--yes")
        (folder.parent / QUEUE).unlink()
    assert str(refused.exception) == (
        "run job-000001 has been on cluster demo, started from another machine, and its nodes would"
        " end; stop the run first (`gpuctl stop job-000001`); a run with `retry` replaces lost"
        " nodes by itself"
    )
    assert replaced == []
