"""gpuctl's commands in a region whose policy lacks one action. Nothing boots."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from config.cluster.cluster_file import Cluster
from config.errors import GpuctlError
from config.progress import silent
from config.target import Target
from lab import fault_kinds, fault_table, session_manager_plugin
from provision.down import down
from provision.permissions.actions import COMMANDS, FEATURES, Feature, needed, optional
from provision.permissions.policy import policy, split
from tests.infra.region import Region, create_boundary
from tests.permissions.commands import Commands, Effort

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
    "role": {"network": {"access": "ssm"}},
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
        create_boundary(here.target)
        # Nobody connects, so this machine need not have Session Manager's plugin.
        plugin = (sys.executable, session_manager_plugin.__file__, "no lab")
        self._target = replace(
            here.target,
            check_permissions=False,
            session_plugin=plugin,
            session_proxy=(sys.executable,),
        )
        self._calls: dict[tuple[Feature, Effort], frozenset[str]] = {}

    def outcome(self, action: str) -> Outcome:
        """Run the commands without the action until an error names it; leave nothing.

        If they do not, the rarer ones run too.
        """
        found: list[Outcome] = []
        for effort in get_args(Effort):
            found.append(self._outcome(action, effort))
            if found[-1].verdict in ("named", "NOT NAMED"):
                return found[-1]
        return next((one for one in found if one.verdict == "goes on"), found[-1])

    def _outcome(self, action: str, effort: Effort) -> Outcome:
        feature, operation = feature_of(action), action.partition(":")[2]
        texts, told = self.run(feature, action, effort)
        is_gone = effort != "rare" and action in GONE_FIRST
        if any(action in text for text in (*texts, *told)):
            verdict: Verdict = "named"
        elif texts:
            verdict = "NOT NAMED"
        elif is_gone or operation not in self._called(feature, effort):
            verdict = "not called"
        else:
            verdict = "goes on" if optional({action}) else "NOT NAMED"
        return Outcome(action, verdict, texts)

    def _called(self, feature: Feature, effort: Effort) -> frozenset[str]:
        """Return the requests of the commands when nothing is refused: the lab records no other."""
        if (feature, effort) not in self._calls:
            folder = self._target.state / "requests"
            for old in folder.glob("*.json"):
                old.unlink()
            texts, _ = self.run(feature, "", effort)
            assert texts == ()
            found = (json.loads(one.read_text())["operation"] for one in folder.glob("*.json"))
            self._calls[feature, effort] = frozenset(found)
        return self._calls[feature, effort]

    def run(
        self, feature: Feature, without: str, effort: Effort
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the errors of the commands without the action, and what else they told."""
        texts: list[str] = []
        told: list[str] = []
        cluster = Cluster.model_validate(BASE | SHAPES[feature])
        allow(self._here, needed() - {without})
        for command in Commands(self._here, self._target, cluster, told).of(effort):
            try:
                command()
            except GpuctlError as error:
                texts.append(str(error))
                if without in texts[-1]:
                    break
        fault_table.write(self._here.faults, {})
        _remove(self._target)
        return tuple(texts), tuple(told)


def allow(here: Region, actions: frozenset[str]) -> None:
    """Bind the region's credentials to gpuctl's policy for these actions."""
    file: Path = here.faults.with_name("policy.json")
    file.write_text(json.dumps(split(policy(actions))))
    fault_table.write(here.faults, {"policy": fault_kinds.parse("policy", (str(file),))})


def _remove(target: Target) -> None:
    try:
        down(str(BASE["name"]), target, silent)
    except GpuctlError as error:
        if "there is no cluster" not in str(error):
            raise
