"""How a program runs in the SDK: registrations start before it ends, and remember no stack."""

import asyncio
import gc
import socket
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime import Settings
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from infra.pulumi_engine.inline_program import inline_program


async def _wait(done: list[str]) -> None:
    done.append("started")
    await asyncio.Event().wait()


def test_what_the_program_registers_is_under_way_when_it_returns() -> None:
    started: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def drive() -> list[str]:
        await run()
        for task in tasks:
            task.cancel()
        return list(started)

    with inline_program(lambda: tasks.append(asyncio.ensure_future(_wait(started)))) as run:
        assert asyncio.run(drive()) == ["started"]


def test_no_resource_remembers_by_which_calls_it_was_made() -> None:
    depths: list[int] = []
    with inline_program(lambda: depths.append(len(traceback.extract_stack()))) as run:
        asyncio.run(run())
    assert depths == [1]
    assert not hasattr(sys, "tracebacklimit")


def test_a_traceback_is_whole_again_after_a_program_that_failed() -> None:
    def build() -> None:
        raise ValueError("mistake")

    with inline_program(build) as run, pytest.raises(ValueError, match="mistake"):
        asyncio.run(run())
    assert not hasattr(sys, "tracebacklimit")


def test_a_limit_that_was_set_before_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "tracebacklimit", 7, raising=False)
    with inline_program(lambda: None) as run:
        asyncio.run(run())
    assert sys.tracebacklimit == 7


def test_tracebacks_are_whole_again_after_two_programs_at_once() -> None:
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first() -> None:
        first_is_in.set()
        second_is_in.wait(0.5)  # in vain: the second one waits for us

    def second() -> None:
        second_is_in.set()
        first_is_out.wait(0.5)

    def run_first() -> None:
        with inline_program(first) as run:
            asyncio.run(run())
        first_is_out.set()

    other = threading.Thread(target=run_first)
    other.start()
    assert first_is_in.wait(10)
    with inline_program(second) as run:
        asyncio.run(run())
    other.join()
    assert not hasattr(sys, "tracebacklimit")


def test_garbage_is_collected_again_after_a_program_that_failed() -> None:
    seen: list[bool] = []

    def build() -> None:
        seen.append(gc.isenabled())
        raise ValueError("mistake")

    with pytest.raises(ValueError, match="mistake"), inline_program(build) as run:
        asyncio.run(run())
    assert seen == [False]
    assert gc.isenabled()


def test_no_task_is_left_of_a_program_whose_engine_ended_before_it() -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: loop.stop())  # as the SDK's does for errors of gRPC
    started: list[str] = []
    tasks: list[asyncio.Task[None]] = []
    with inline_program(lambda: tasks.append(loop.create_task(_wait(started)))) as run:
        loop.run_until_complete(run())
        tasks.append(loop.create_task(_wait(started)))
        loop.stop()
        loop.call_soon(loop.call_exception_handler, {"message": "nobody awaited it"})
    assert started == ["started"]
    assert [task.cancelled() for task in tasks] == [True, True]
    assert loop.is_closed()


class Logs(engine_pb2_grpc.EngineServicer):
    def Log(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()


def test_an_engine_is_reached_at_the_port_of_one_that_has_ended() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    left = Settings("gpuctl", "demo", engine=address).engine
    assert left is not None
    with pytest.raises(grpc.RpcError, match="Connection refused"):
        left.Log(engine_pb2.LogRequest())
    server = grpc.server(ThreadPoolExecutor(1))
    engine_pb2_grpc.add_EngineServicer_to_server(Logs(), server)
    server.add_insecure_port(address)
    server.start()
    try:
        engine = Settings("gpuctl", "demo", engine=address).engine
        assert engine is not None
        engine.Log(engine_pb2.LogRequest())
    finally:
        server.stop(None).wait()
