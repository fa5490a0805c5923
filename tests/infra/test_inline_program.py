"""How a program runs in Pulumi's SDK, and what is left of one whose engine ended before it."""

import asyncio
import gc
import json
from concurrent.futures import Future

import grpc
import pytest

from config.cluster.resolved import Resolved
from config.errors import InfraError, InputError
from infra.stack.inline_program import inline_program
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from tests.infra.region import Region, resolved


def test_a_cluster_that_cannot_be_resolved_fails_the_program() -> None:
    cluster = Future[Resolved]()
    cluster.set_exception(InputError("no such type", ""))

    async def run() -> None:
        await program()

    with inline_program(cluster) as program, pytest.raises(InputError, match="no such type"):
        asyncio.run(run())


@pytest.mark.engine
def test_no_connection_is_left_to_an_engine_that_ended_before_its_program(
    here: Region, engine: Engine
) -> None:
    """gRPC would call the next engine unreachable if it got the port of the one that has ended."""
    here.capacity.write_text(json.dumps({"us-east-1a": {"p4d.24xlarge": 0}}))
    stack = Stack("demo", here.target, engine)
    with pytest.raises(InfraError, match="InsufficientInstanceCapacity"):
        stack.up(resolved(here.target))
    assert [channel for channel in gc.get_objects() if isinstance(channel, grpc.Channel)] == []
    stack.destroy()
