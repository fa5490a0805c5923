"""A region on loopback for tests: the lab's API without machines, and its provider."""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from pulumi import automation

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Image, InstanceType, NetworkCard, Resolved
from config.target import Target
from infra.program.interface_layout import interfaces
from infra.stack.engine_command import EngineCommand
from infra.stack.installation import Engine
from infra.stack.workspace import PROJECT, workspace_options
from lab.access_key import ADMINISTRATOR
from provision.permissions.policy import BOUNDARY, boundary_document
from tests.labs import KEY
from tests.processes import ERRORS

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REGION = "us-east-1"
CREDENTIALS = KEY.environment
PUBLIC_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFnZ3JlZ2F0ZS1rZXktZm9yLXRlc3RzLW9ubHkwMDAw gpuctl"
)


@contextmanager
def child(*arguments: str) -> Iterator[tuple[str, int]]:
    """A Python module runs until the end of this: its first line on standard output, its pid."""
    with _running(*arguments) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid


@contextmanager
def _running(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=ERRORS,
        env={**os.environ, **CREDENTIALS},
        cwd=Path(__file__).parents[2],
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
        process.stdin.close()
        process.stdout.close()


@dataclass(frozen=True)
class Region:
    """A region of a test's own. `capacity` and `faults` are tables that the lab reads each time."""

    target: Target
    api_pid: int
    capacity: Path
    faults: Path

    @contextmanager
    def silent(self) -> Iterator[None]:
        """The API accepts requests and answers none until the end of this."""
        os.kill(self.api_pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.api_pid, signal.SIGCONT)


class Worlds:
    """Processes that serve fresh regions one after the other (`tests.infra.worlds`).

    A process of its own for each region takes some seconds of a processor for its imports.
    """

    def __init__(self) -> None:
        self._running = ExitStack()
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def end(self) -> None:
        """End both processes."""
        self._running.close()

    @contextmanager
    def api(self, state: Path) -> Iterator[tuple[str, int]]:
        """Serve an empty region: its URL, and the pid of what serves it.

        Its tables are `capacity.json`, `faults.json` and `moment.json` in the folder
        (`tests.leaks.moments`).
        """
        tables = {table: str(state / f"{table}.json") for table in ("capacity", "faults", "moment")}
        with self._serving("api", tables) as url:
            yield url, self._processes["api"].pid

    @contextmanager
    def region(self, state: Path) -> Iterator[Region]:
        """Serve an empty region and its provider."""
        faults = state / "faults.json"
        with self.api(state) as (url, pid), self.provider(url, faults) as (port, _):
            yield Region(target_of(state, url, port), pid, state / "capacity.json", faults)

    @contextmanager
    def provider(self, url: str, faults: Path) -> Iterator[tuple[str, int]]:
        """Serve a provider for the API at `url`: its port, and its pid, which may be killed."""
        with self._serving("provider", {"endpoint": url, "faults": str(faults)}) as port:
            yield port, self._processes["provider"].pid

    @contextmanager
    def _serving(self, kind: str, wanted: dict[str, str]) -> Iterator[str]:
        if kind not in self._processes or self._processes[kind].poll() is not None:
            self._processes[kind] = self._running.enter_context(
                _running("tests.infra.worlds", kind)
            )
        answer = self._ask(kind, wanted)
        try:
            yield answer
        finally:
            if self._processes[kind].poll() is None:
                self._ask(kind, None)

    def _ask(self, kind: str, wanted: dict[str, str] | None) -> str:
        process = self._processes[kind]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(wanted)}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"tests.infra.worlds {kind} has ended"
        return answer.strip()


@contextmanager
def region(state: Path) -> Iterator[Region]:
    """A fresh region with nothing in it, in processes of its own.

    It records its requests in `requests` of the state folder, if that exists.
    """
    capacity, faults, requests = (
        state / name for name in ("capacity.json", "faults.json", "requests")
    )
    tables = {"--capacity": capacity, "--faults": faults, "--requests": requests}
    words = [word for name, path in tables.items() for word in (name, str(path))]
    with (
        child("lab.api", *words) as (url, api_pid),
        child("lab.provider", "--endpoint", url, "--faults", str(faults)) as (port, _),
    ):
        yield Region(target_of(state, url, port), api_pid, capacity, faults)


def target_of(state: Path, url: str, port: str) -> Target:
    return Target(
        name="test",
        region=REGION,
        state=state,
        endpoint=url,
        environment=CREDENTIALS,
        provider_address=f"127.0.0.1:{port}",
        caller_address="198.18.255.1",
    )


def stored_resources(name: str, target: Target, engine: Engine) -> list[dict[str, Any]]:
    """What Pulumi has stored of a cluster's resources, the provider's own included."""
    stack = automation.select_stack(
        name,
        project_name=PROJECT,
        program=lambda: None,
        opts=workspace_options(name, target, EngineCommand(engine)),
    )
    return list((stack.export_stack().deployment or {})["resources"])


def client(target: Target) -> "EC2Client":
    """EC2's client of the administrator."""
    made: EC2Client = administrator(target, "ec2")
    return made


def administrator(target: Target, service: str) -> Any:
    """A boto3 client of the region, of somebody whom the policy of its credentials leaves alone."""
    return _client(service, target.endpoint, target.region)


def create_boundary(target: Target) -> str:
    """Create gpuctl's permissions boundary, as an administrator does once; return its ARN."""
    made = administrator(target, "iam").create_policy(
        PolicyName=BOUNDARY, PolicyDocument=json.dumps(boundary_document())
    )
    return str(made["Policy"]["Arn"])


@lru_cache(maxsize=8)
def _client(service: str, endpoint: str | None, region: str) -> Any:
    made: Any = boto3.client  # its stubs know services by their names alone
    return made(  # tests ask many times, and making one takes 20 ms of a processor
        service,
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=KEY.key_id,
        aws_secret_access_key=KEY.secret,
        aws_session_token=ADMINISTRATOR,
    )


@cache
def described_types() -> Any:
    """Every type by its name as EC2 describes it, from moto's copy of DescribeInstanceTypes."""
    data = files("moto.ec2").joinpath("resources/instance_types.json.gz").read_bytes()
    return json.loads(gzip.decompress(data))


def instance_type(name: str) -> InstanceType:
    """The type as EC2 describes it, whatever gpuctl's own reader makes of that."""
    described: dict[str, Any] = described_types()[name]
    network = described["NetworkInfo"]
    gpus = described.get("GpuInfo", {}).get("Gpus", [])
    return InstanceType(
        name=name,
        vcpus=described["VCpuInfo"]["DefaultVCpus"],
        memory_mib=described["MemoryInfo"]["SizeInMiB"],
        gpus=sum(gpu["Count"] for gpu in gpus),
        gpu_model=gpus[0]["Name"] if gpus else "",
        architecture=described["ProcessorInfo"]["SupportedArchitectures"][0],
        max_efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        cards=tuple(
            NetworkCard(
                index=card["NetworkCardIndex"],
                max_interfaces=card["MaximumNetworkInterfaces"],
                interface_types=tuple(card.get("InterfaceTypes", ())),
            )
            for card in network["NetworkCards"]
        ),
        local_disks=sum(
            disk["Count"] for disk in described.get("InstanceStorageInfo", {}).get("Disks", ())
        ),
    )


def resolved(target: Target, **changes: Any) -> Resolved:
    """A cluster `demo` with nothing open; `changes` are fields of the cluster file."""
    cluster = Cluster.model_validate(
        {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge", **changes}
    )
    kind = instance_type(cluster.instance_type)
    found = client(target).describe_images(Owners=["amazon"])["Images"]
    image = Image(
        id=found[0]["ImageId"],
        name=found[0]["Name"],
        root_device=found[0]["RootDeviceName"],
        architecture="x86_64",
    )
    return Resolved(
        cluster=cluster,
        account="123456789012",
        region=target.region,
        zone=f"{target.region}a",
        instance_type=kind,
        interfaces=interfaces(kind, cluster.network.efa, cluster.network.interfaces),
        image=image,
        bastion_type="t3.small",
        bastion_image=image,
        bastion_price_usd_h=0.0208,
        nat_price_usd_h=0.045,
        ssh_from="198.18.255.1/32",
        public_key=PUBLIC_KEY,
        nodes_public_key=PUBLIC_KEY,
        user_data="#cloud-config\n# node\n",
        bastion_user_data="#cloud-config\n# bastion\n",
        tags={"gpuctl:cluster": "demo", **cluster.tags},
    )
