"""gpuctl's commands in a region whose policy lacks one action. Nothing boots."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from config.cluster.cluster_file import Cluster
from config.errors import GpuctlError, NodeError
from config.progress import silent
from config.target import Target
from infra.program.aws_calls import Feature
from lab import fault_kinds, fault_table, session_manager_plugin
from provision import up as life
from provision.capacity import capacity
from provision.down import down
from provision.drift import drift
from provision.gc import enabled_regions, survey
from provision.permissions.actions import COMMANDS, FEATURES, needed, optional
from provision.permissions.policy import policy, split
from provision.records.record import read
from provision.removal.sweep import sweep
from provision.status import clusters
from tests.infra.region import Region
from tests.provision.unbooted import nothing_boots

Verdict = Literal["named", "goes on", "not called", "NOT NAMED"]

BASE: dict[str, Any] = {
    "name": "denied",
    "nodes": 1,
    "instance_type": "c6i.large",
    "lifetime": {"max": "8h"},
}
SHAPES: dict[Feature, dict[str, Any]] = {
    "network": {},
    "efs": {"storage": {"shared": {"type": "efs"}}},
    "fsx-lustre": {"storage": {"shared": {"type": "fsx-lustre"}}},
    "ssm": {"network": {"access": "ssm"}},
    "spot": {"capacity": {"type": "spot"}},
}

GONE_FIRST = frozenset({"ec2:DeleteNetworkInterface", "ec2:DisassociateAddress"})
"""Requests about what ends with an instance or a gateway: the lab says so before it reads a policy.
"""


@dataclass(frozen=True)
class Outcome:
    """An action, and what the commands did without it: `texts` are their errors."""

    action: str
    verdict: Verdict
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.action}: {self.verdict}"


def feature_of(action: str) -> Feature:
    """Return the feature of a cluster that needs the action; `network` if every cluster does."""
    return next(
        one for one in ("network", *FEATURES) if action in needed(COMMANDS, {"network", one})
    )


class Denied:
    """A region that records its requests, and what the commands send under the whole policy."""

    def __init__(self, here: Region) -> None:
        self._here = here
        # Nobody connects, so this machine need not have Session Manager's plugin.
        plugin = (sys.executable, session_manager_plugin.__file__, "no lab")
        self._target = replace(here.target, check_permissions=False, session_plugin=plugin)
        self._calls: dict[tuple[Feature, bool], frozenset[str]] = {}

    def outcome(self, action: str) -> Outcome:
        """Run the commands without the action until an error names it; leave nothing.

        If they do not need it, the rarer ones run too: a change of the cluster, a removal of what
        Pulumi does not know, a search for regions.
        """
        found = self._outcome(action, is_long=False)
        return self._outcome(action, is_long=True) if found.verdict == "not called" else found

    def _outcome(self, action: str, *, is_long: bool) -> Outcome:
        feature = feature_of(action)
        texts, warnings = self._run(feature, action, is_long)
        if any(action in text for text in (*texts, *warnings)):
            verdict: Verdict = "named"
        elif texts:
            verdict = "NOT NAMED"
        elif action in GONE_FIRST or action.partition(":")[2] not in self._called(feature, is_long):
            verdict = "not called"
        else:
            verdict = "goes on" if optional({action}) else "NOT NAMED"
        return Outcome(action, verdict, texts)

    def _called(self, feature: Feature, is_long: bool) -> frozenset[str]:
        """Return the requests of the commands when nothing is refused: the lab records no other."""
        if (feature, is_long) not in self._calls:
            folder = self._target.state / "requests"
            for old in folder.glob("*.json"):
                old.unlink()
            texts, _ = self._run(feature, "", is_long)
            assert texts == ()
            found = (json.loads(one.read_text())["operation"] for one in folder.glob("*.json"))
            self._calls[feature, is_long] = frozenset(found)
        return self._calls[feature, is_long]

    def _run(
        self, feature: Feature, without: str, is_long: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the errors and the warnings of the commands."""
        texts: list[str] = []
        warnings: list[str] = []
        cluster = Cluster.model_validate(BASE | SHAPES[feature])
        with _machines_that_answer_nobody():
            allow(self._here, needed() - {without})
            for command in _commands(cluster, self._target, warnings, is_long):
                try:
                    command()
                except GpuctlError as error:
                    texts.append(str(error))
                    if without in texts[-1]:
                        break
            fault_table.write(self._here.faults, {})
            _remove(self._target)
        return tuple(texts), tuple(warnings)


def allow(here: Region, actions: frozenset[str]) -> None:
    """Bind the region's credentials to gpuctl's policy for these actions."""
    file: Path = here.faults.with_name("policy.json")
    file.write_text(json.dumps(split(policy(actions))))
    fault_table.write(here.faults, {"policy": fault_kinds.parse("policy", (str(file),))})


def _commands(
    cluster: Cluster, target: Target, warnings: list[str], is_long: bool
) -> Iterator[Callable[[], object]]:
    """Yield the commands; `down` has a cluster to remove only if `up` did not fail."""

    def up(wanted: Cluster) -> None:
        plan = life.plan(wanted, target, silent)
        warnings.extend(plan.resolved.warnings)
        life.up(plan, target, silent)

    yield lambda: capacity(cluster.instance_type, cluster.nodes, target)
    yield lambda: up(cluster.model_copy(update={"tags": {"team": "a"}}) if is_long else cluster)
    yield lambda: clusters(target)
    yield lambda: drift(cluster.name, target, silent)
    yield lambda: survey(target, (target.region,), silent)
    if is_long:
        yield lambda: enabled_regions(target)
        yield lambda: up(_changed(cluster))
        yield lambda: _sweep(cluster.name, target)
    yield lambda: down(cluster.name, target, silent)


def _changed(cluster: Cluster) -> Cluster:
    """Return the cluster with other tags, set-up and, if its ssh port is open, addresses."""
    fields: dict[str, Any] = {"tags": {"project": "b"}, "setup": {"commands": ("true",)}}
    network = cluster.network.model_dump(exclude_unset=True)
    if not cluster.network.uses_session_manager:
        network["ssh_from"] = "192.0.2.0/24"
    content = cluster.model_dump(exclude_unset=True) | fields | {"network": network}
    return Cluster.model_validate(content)


def _sweep(name: str, target: Target) -> None:
    """Remove the cluster by its tags, as where Pulumi's state is lost; do not wait in vain."""
    record = read(name, target)
    if record is not None:
        with mock.patch("provision.removal.sweep.PAUSE_S", 0):
            sweep(target, name, record.id, silent)


def _remove(target: Target) -> None:
    try:
        down(str(BASE["name"]), target, silent)
    except GpuctlError as error:
        if "there is no cluster" not in str(error):
            raise


@contextmanager
def _machines_that_answer_nobody() -> Iterator[None]:
    def unreachable(_: object) -> Any:
        raise NodeError("the bastion cannot be reached", "")

    with (
        mock.patch("provision.spares.bootstrap", nothing_boots),
        mock.patch("provision.lease.connect", unreachable),
    ):
        yield
