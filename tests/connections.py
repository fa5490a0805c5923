"""Connections to nodes that a test gives to the commands of its own process."""

from collections.abc import Callable

import pytest

from nodes.inventory import Inventory


class WithoutSsh:
    """Connections that need no ssh: a test's class adds how commands are answered."""

    async def enter(self) -> None:
        """There is no bastion to connect to."""

    async def close(self) -> None:
        """Nothing is open."""


Connect = Callable[[Inventory], WithoutSsh]


@pytest.fixture
def reach_nodes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Connect], None]:
    """Have commands reach the nodes of an inventory by the connections that a function returns."""

    def put_in(connect: Connect) -> None:
        for name in ("nodes.ssh.Connections", "nodes.kept_connections.KeptConnections"):
            monkeypatch.setattr(name, lambda inventory, *_: connect(inventory))

    return put_in
