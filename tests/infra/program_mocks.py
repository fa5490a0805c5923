"""The program's resources without Pulumi's engine, as Pulumi's documentation tests programs."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.runtime.stack import run_pulumi_func

from config.cluster.resolved import Resolved
from infra.fleet import NO_CLAIMS
from infra.program.cluster_program import whole_cluster

OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "aws:ec2/instance:Instance": {"privateIp": "10.213.128.4", "publicIp": "198.51.100.7"},
    "aws:ec2/eip:Eip": {"publicIp": "198.51.100.8"},
    "aws:ec2/launchTemplate:LaunchTemplate": {"latestVersion": 3},
    "aws:efs/fileSystem:FileSystem": {"dnsName": "fs-1.efs.us-east-1.amazonaws.com"},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {
        "dnsName": "fs-1.fsx.us-east-1.amazonaws.com",
        "mountName": "a1b2",
    },
}
"""What AWS adds to the inputs of a type, as far as the program reads it."""


class Loops(asyncio.DefaultEventLoopPolicy):
    """Keeps each event loop that is made: the SDK's mocks make some in threads, and close none."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        self.made.append(super().new_event_loop())
        return self.made[-1]


class Recorder(pulumi.runtime.Mocks):
    """Answers each registration, and keeps its inputs by type and name."""

    def __init__(self) -> None:
        self.inputs: dict[str, Mapping[str, Any]] = {}

    def new_resource(
        self, args: pulumi.runtime.MockResourceArgs
    ) -> tuple[str | None, dict[Any, Any]]:
        self.inputs[f"{args.typ} {args.name}"] = args.inputs
        return f"{args.name}-id", {**args.inputs, **OUTPUTS.get(args.typ, {})}

    def call(
        self, args: pulumi.runtime.MockCallArgs
    ) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        return {"id": "eni-1"}, None


def resources_of(resolved: Resolved) -> dict[str, Mapping[str, Any]]:
    """The inputs of all resources of the cluster, by `type name`, with Pulumi's names."""
    recorder = Recorder()

    async def record() -> None:
        pulumi.runtime.set_mocks(recorder)
        await run_pulumi_func(lambda: whole_cluster(resolved, NO_CLAIMS))

    loops = Loops()
    asyncio.set_event_loop_policy(loops)
    try:
        asyncio.run(record())  # in a context of its own: the mocks end with it
    finally:
        asyncio.set_event_loop_policy(None)
        for loop in loops.made:
            loop.close()
    return recorder.inputs
