"""A run whose head is not reached: it has not started, and everything is as it was."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.record.history import History
from engine.session import session
from engine.session.head import NotStarted
from nodes import dial
from nodes.answers import NotReached, Unreachable, may_have_run
from nodes.kept_connections import connect
from nodes.keys import ensure_key
from tests.engine.conftest import make_plan
from tests.nodes.conftest import Site, site  # noqa: F401  a fixture

pytestmark = pytest.mark.slow


def stop_nodes(there: Site) -> None:
    there.nodes[0].stop()


def stop_bastion(there: Site) -> None:
    there.bastion.stop()


def refuse_keys(there: Site) -> None:
    (there.inventory.folder.parent / "authorized_keys").write_text("")


def change_host_key(there: Site) -> None:
    known = there.inventory.folder / "known_hosts"
    other = ensure_key(there.inventory.folder / "other", "other")
    known.write_text(known.read_text().replace(there.nodes[0].host_key, other))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (stop_nodes, "node0 (127.0.0.1) cannot be reached from the bastion: "),
        (stop_bastion, "the bastion (127.0.0.1) cannot be reached: Connection refused; "),
        (refuse_keys, "the bastion (127.0.0.1) refused the cluster's key; "),
        (change_host_key, "node0 (127.0.0.1) shows a host key that is not the pinned one; "),
    ],
)
def test_a_run_whose_head_is_not_reached_was_not_started(
    spoil: Callable[[Site], None],
    why: str,
    site: Site,  # noqa: F811
    tmp_path: Path,
) -> None:
    spoil(site)
    plan = make_plan(on_stop="destroy")
    runs = tmp_path / "runs"
    with pytest.raises(NotStarted) as refused:
        asyncio.run(session.run(plan, site.inventory, runs, lambda _: None))
    dial.end(str(site.inventory.folder))
    text = str(refused.value)
    assert text.startswith(f"run {plan.run_id} was not started: {why}")
    assert text.endswith("cluster demo is as it was, and bills: `gpuctl down demo` removes it")
    with History(runs) as history:
        assert history.runs() == ()


def test_a_connection_that_breaks_while_a_command_runs_may_have_started_it(
    site: Site,  # noqa: F811
) -> None:
    """The command ends its own sshd, so its exit status is never known."""

    async def ask() -> None:
        async with connect(site.inventory) as connections:
            await connections.run(site.inventory.nodes[0], "kill -9 $PPID")

    with pytest.raises(Unreachable) as lost:
        asyncio.run(ask())
    dial.end(str(site.inventory.folder))
    assert not isinstance(lost.value, NotReached)
    assert may_have_run(lost.value)
