"""The lab's provider sends what the real one sent, phase by phase; each difference is deliberate.

`recordings/` has the requests of terraform-provider-aws 5.49, with its own code for EC2, IAM, EFS,
FSx, SSM and STS, behind Pulumi's bridge 3.120 and Pulumi's engine, which ran gpuctl's program of
2026-11-26 against the lab's API. Equal neighbours have a count. That of the removal of spot
instances is missing: the lab's API could not cancel their requests then.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from config.loading.load import load_cluster
from config.target import Target
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from lab import fault_table
from lab.requests.wire import NAMES
from provision.preflight.preflight import resolve
from provision.state.store import ClusterStore
from tests.infra.region import create_boundary, region
from tests.plans.cases import MODES, TYPES, Case
from tests.plans.life import PLUGIN, REGION

pytestmark = [pytest.mark.engine, pytest.mark.thorough]

FOLDER = Path(__file__).parent / "recordings"
CASES = {
    **{case.name: case for case in MODES},
    "p5": next(case for case in TYPES if case.name == "p5.48xlarge"),
}
RECORDED = sorted(file.stem for file in FOLDER.glob("*.json"))
UP, AGAIN, DOWN = "up", "preview after", "down"
SIGNED = {name: signed for signed, name in NAMES.items()}

READS_NOT_SENT: Mapping[str, str] = {
    "sts:GetCallerIdentity": "the lab has one account, so its provider compares no account ids",
}
"""The reads of the real provider that the lab's never sends, and why."""

READS_ADDED: Mapping[str, str] = {
    "ec2:DescribeAddresses": "before a removal the lab's provider asks where an address is used",
    "iam:GetInstanceProfile": "before a removal the lab's provider asks which role a profile has",
}
"""The reads of the lab's provider that the real one does not send in that phase, and why."""

WRITES_NOT_SENT: Mapping[str, str] = {}
"""The writes of the real provider that the lab's never sends, or less often, and why."""

WRITES_ADDED: Mapping[str, str] = {
    "ec2:RunInstances": "the lab is faster than IAM, so its provider repeats a launch with a new"
    " instance profile, as the real one would",
}
"""The writes that the lab's provider sends more often, and why."""

CHAINS: Mapping[str, Sequence[str]] = {
    UP: (
        "CreateVpc ModifyVpcAttribute CreateSubnet CreateNatGateway",
        "CreateVpc CreateInternetGateway AttachInternetGateway AllocateAddress CreateNatGateway",
        "CreateSecurityGroup RevokeSecurityGroupEgress AuthorizeSecurityGroupIngress"
        " AuthorizeSecurityGroupEgress CreateLaunchTemplate RunInstances",
        "CreateRouteTable CreateRoute AssociateRouteTable CreateNatGateway",
        "CreatePlacementGroup CreateLaunchTemplate",
        "ImportKeyPair CreateLaunchTemplate",
        "CreateRole PutRolePolicy CreateInstanceProfile AddRoleToInstanceProfile"
        " CreateLaunchTemplate",
        "elasticfilesystem:CreateFileSystem CreateMountTarget",
        "fsx:CreateFileSystem CreateLaunchTemplate",
        "CreateSubnet fsx:CreateFileSystem",
        "RunInstances AssociateAddress",
    ),
    DOWN: (
        "DisassociateAddress ReleaseAddress",
        "DisassociateAddress ModifyInstanceAttribute CancelSpotInstanceRequests TerminateInstances"
        " DeleteLaunchTemplate DeleteSecurityGroup DeleteVpc",
        "TerminateInstances DisassociateRouteTable DeleteRouteTable DeleteVpc",
        "DeleteNatGateway ReleaseAddress DetachInternetGateway DeleteInternetGateway",
        "DetachInternetGateway DeleteVpc",
        "DeleteLaunchTemplate DeletePlacementGroup",
        "DeleteLaunchTemplate DeleteKeyPair",
        "DeleteLaunchTemplate RemoveRoleFromInstanceProfile DeleteInstanceProfile DeleteRole",
        "DeleteRolePolicy DeleteRole",
        "DeleteMountTarget DeleteSubnet DeleteVpc",
        "DeleteMountTarget elasticfilesystem:DeleteFileSystem",
        "fsx:DeleteFileSystem DeleteSubnet",
    ),
}
"""The orders that dependencies impose: one of each comes before one of the next."""


@dataclass(frozen=True)
class Sent:
    """The requests of a phase: the writes in order, the reads with counts."""

    writes: tuple[str, ...]
    reads: frozenset[str]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    state = tmp_path_factory.mktemp("recordings")
    # Under a policy the lab's provider sends the requests of the real one whose answers it ignores.
    everything = state / "policy.json"
    allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    everything.write_text(json.dumps({"Version": "2012-10-17", "Statement": [allow]}))
    fault_table.write(state / "faults.json", {fault_table.POLICY: (str(everything),)})
    with region(state) as made:
        create_boundary(made.target)
        yield replace(made.target, region=REGION)


def recording(name: str) -> dict[str, Sent]:
    phases: Mapping[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return {
        phase: Sent(tuple(unfolded(found["writes"])), frozenset(found["reads"]))
        for phase, found in phases.items()
    }


def unfolded(writes: Iterable[str]) -> Iterator[str]:
    for line in writes:
        name, _, count = line.partition(" x")
        yield from [name] * int(count or 1)


@pytest.fixture
def sent(name: str, here: Target, engine: Engine) -> dict[str, Sent]:
    """What the lab's provider sends in each phase."""
    resolved = resolve(
        load_cluster(written(CASES[name], here)), ClusterStore(replace(here, session_plugin=PLUGIN))
    )
    stack = Stack(resolved.cluster.name, here, engine)
    found: dict[str, Sent] = {}
    for phase in (UP, AGAIN, DOWN):
        folder = here.state / "requests"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if phase == UP:
            stack.up(resolved)
        elif phase == AGAIN:
            assert stack.preview(resolved).is_empty
        else:
            stack.destroy()
        found[phase] = recorded(folder)
    return found


def recorded(folder: Path) -> Sent:
    requests = [json.loads(file.read_text()) for file in sorted(folder.iterdir())]
    names = [f"{SIGNED.get(r['service'], r['service'])}:{r['operation']}" for r in requests]
    reads = {name for name in names if re.search(":(Describe|Get|List)", name)}
    return Sent(tuple(name for name in names if name not in reads), frozenset(reads))


def places(operation: str, writes: Sequence[str]) -> list[int]:
    """The places of the writes of the operation, with or without its service's name."""
    return [i for i, name in enumerate(writes) if operation in (name, name.partition(":")[2])]


def out_of_order(phase: str, writes: Sequence[str]) -> list[str]:
    """The pairs of a chain of which the second one ends before the first one begins."""
    wrong = []
    for chain in CHAINS.get(phase, ()):
        found = [(name, places(name, writes)) for name in chain.split()]
        there = [(name, at) for name, at in found if at]
        wrong += [f"{b} before {a}" for (a, one), (b, two) in pairwise(there) if two[-1] < one[0]]
    return wrong


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_has_the_order_of_the_dependencies(name: str) -> None:
    for phase, one in recording(name).items():
        assert out_of_order(phase, one.writes) == []


@pytest.mark.parametrize("name", RECORDED)
def test_the_labs_provider_sends_what_the_real_one_sent(name: str, sent: dict[str, Sent]) -> None:
    differences = {}
    for phase, real in recording(name).items():
        ours = sent[phase]
        missing = Counter(real.writes) - Counter(ours.writes)
        added = Counter(ours.writes) - Counter(real.writes)
        differences[phase] = (
            {write: count for write, count in missing.items() if write not in WRITES_NOT_SENT},
            {write: count for write, count in added.items() if write not in WRITES_ADDED},
            sorted(real.reads - ours.reads - READS_NOT_SENT.keys()),
            sorted(ours.reads - real.reads - READS_ADDED.keys()),
            out_of_order(phase, ours.writes),
        )
    assert differences == dict.fromkeys(differences, ({}, {}, [], [], []))
    assert sent[AGAIN].writes == ()


@pytest.mark.parametrize("name", ["capacity-spot"])
def test_spot_requests_are_cancelled_before_their_instances_end(sent: dict[str, Sent]) -> None:
    writes = Counter(sent[DOWN].writes)
    assert writes["ec2:CancelSpotInstanceRequests"] == 2
    assert out_of_order(DOWN, sent[DOWN].writes) == []


def test_each_difference_is_one() -> None:
    real = [one for name in RECORDED for one in recording(name).values()]
    assert READS_NOT_SENT.keys() <= {read for one in real for read in one.reads}
    assert WRITES_NOT_SENT.keys() <= {write for one in real for write in one.writes}


def written(case: Case, here: Target) -> Path:
    file = here.state / f"{case.name}.yaml"
    file.write_text(case.text)
    return file
