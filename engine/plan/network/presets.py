"""Network presets: which one a run gets, its variables, and the transport that it promises."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from config.catalogue.instance_types import catalogue
from config.run.run_file import PresetName, Run
from engine.contract.plan import NetworkPlan, Promise
from engine.plan.network import settings
from engine.plan.network.settings import (
    HCAS,
    INTERFACE,
    BadSetting,
    PresetVariable,
    UserSetting,
    commands_of,
)
from nodes.inventory import OWN_MACHINES, Inventory, Node


@dataclass(frozen=True)
class NodeNeeds:
    """The requirements of a preset on a run's nodes.

    A device is an EFA interface without a `layer`.
    """

    device: str
    layer: Literal["InfiniBand", "Ethernet", ""] = ""
    prefix: str = ""
    nodes: int = 1
    gpus: int = 0

    def devices(self, node: Node) -> tuple[str, ...]:
        """Return the node's RDMA devices of this link layer and prefix."""
        pairs = (hca.partition(":") for hca in node.hcas)
        return tuple(
            device
            for device, _, layer in pairs
            if layer == self.layer and device.startswith(self.prefix)
        )

    def is_in(self, node: Node) -> bool:
        """Return whether the node has such a device."""
        return bool(self.devices(node)) if self.layer else node.efa > 0


@dataclass(frozen=True)
class Preset:
    """A network preset. `title` names it in docs/look-up/network.md.

    `promises` is the transport that NCCL's lines must prove, empty for none. `unwise` are variables
    that cause a warning if a user sets them. `needs` is None if the preset fits all nodes.
    """

    name: PresetName
    title: str
    promises: Promise
    settings: tuple[PresetVariable, ...]
    unwise: tuple[BadSetting, ...]
    needs: NodeNeeds | None = None

    def environment(self, run: Run, nodes: Sequence[Node], instance_type: str) -> dict[str, str]:
        """Return the variables of every process of the run, the same on all `nodes`."""
        variables = {
            setting.name: _value(setting, self.needs, nodes)
            for setting in self.settings
            if not setting.families or instance_type.partition(".")[0] in setting.families
            if not setting.is_for_forks or may_fork(run)
        }
        interface = _common(node.interface for node in nodes)
        if instance_type == OWN_MACHINES and interface and _SOCKETS in variables:
            # Such machines may have further networks, for storage or for administration.
            variables[_SOCKETS] = f"={interface}"
        return {name: value for name, value in variables.items() if value}


_SOCKETS = "NCCL_SOCKET_IFNAME"
_RDMA_UNWISE = (*settings.ANY_UNWISE, *settings.RDMA_UNWISE)

_ALL = (
    Preset(
        name="efa",
        title="EFA",
        promises="efa",
        settings=settings.EFA_SETTINGS,
        unwise=(*_RDMA_UNWISE, *settings.OBSOLETE, *settings.EFA_UNWISE),
        needs=NodeNeeds("EFA interface"),
    ),
    # TI-ONE uses its preset for jobs with 2 nodes or more with 8 whole GPUs each (documentation of
    # TI-ONE, 2026-11-20). The device's name is the value of its NCCL_IB_HCA.
    Preset(
        name="hcc",
        title="TI-ONE's HCC",
        promises="roce",
        settings=settings.HCC_SETTINGS,
        unwise=(*_RDMA_UNWISE, *settings.VERBS_UNWISE),
        needs=NodeNeeds("device mlx5_bond_*", "Ethernet", "mlx5_bond", nodes=2, gpus=8),
    ),
    Preset(
        name="infiniband",
        title="InfiniBand",
        promises="infiniband",
        settings=settings.VERBS_SETTINGS,
        unwise=(*_RDMA_UNWISE, *settings.OBSOLETE, *settings.VERBS_UNWISE),
        needs=NodeNeeds("InfiniBand device", "InfiniBand"),
    ),
    Preset(
        name="roce",
        title="RoCE",
        promises="roce",
        settings=settings.VERBS_SETTINGS,
        unwise=(
            *_RDMA_UNWISE,
            *settings.OBSOLETE,
            *settings.VERBS_UNWISE,
            *settings.ROCE_UNWISE,
        ),
        needs=NodeNeeds("RoCE device", "Ethernet"),
    ),
    Preset("tcp", "only sockets", "", settings.SOCKET_SETTINGS, settings.ANY_UNWISE),
    Preset("none", "no variables", "", (), settings.ANY_UNWISE),
)

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _ALL}
"""The presets by name. `network: auto` takes the first one in this order that fits the nodes."""

BY_HARDWARE = ("auto", "rdma")
"""The networks of a run file that are no presets: the nodes' hardware decides."""


_PYTHON = re.compile(r"\bpython[0-9.]*\b|\.py\b|\bray\b")
MAY_FORK = "for `mpi` only if Python or Ray is in its commands, and not for `nccl-tests`"
"""What `may_fork` decides, in words."""


def may_fork(run: Run) -> bool:
    """Return whether processes of the run may fork while they use EFA (`MAY_FORK`).

    An MPI program in C seldom does. One that does needs the variable in its `env`.
    """
    if run.type == "mpi":
        return any(map(_PYTHON.search, commands_of(run)))
    return run.type != "nccl-tests"


def choose_preset(run: Run, nodes: Sequence[Node]) -> Preset:
    """Return the preset that the run names; else the one for the hardware of all its nodes.

    If bootstrap has not examined the hardware, that one sets nothing.
    """
    if run.network not in BY_HARDWARE:
        return PRESETS[run.network]
    if not all(is_examined(node) for node in nodes):
        return PRESETS["none"]
    return next(preset for preset in PRESETS.values() if misfit_reason(preset, nodes) is None)


def misfit_reason(preset: Preset, nodes: Sequence[Node]) -> str | None:
    """Return why the preset does not fit these nodes; None if it fits.

    Nodes with unknown hardware have any device.
    """
    needs = preset.needs
    if needs is None:
        return None
    if len(nodes) < needs.nodes:
        return f"it is for {needs.nodes} nodes or more, the run has {len(nodes)}"
    small = next((node for node in nodes if node.gpus < needs.gpus), None)
    if small is not None:
        return f"it is for nodes with {needs.gpus} GPUs, {small.name} has {small.gpus}"
    examined = (node for node in nodes if is_examined(node))
    lacking = next((node for node in examined if not needs.is_in(node)), None)
    return None if lacking is None else f"{lacking.name} has no {needs.device}"


def warnings(
    preset: Preset, settings: Sequence[UserSetting], nodes: Sequence[Node] = ()
) -> tuple[str, ...]:
    """Return a line per variable of the user that is obsolete, harmful or hides the proof.

    Interfaces are compared with those of the nodes, if bootstrap has found them all.
    """
    names = {node.interface for node in nodes}
    interfaces = names if all(names) else set()
    return tuple(
        dict.fromkeys(
            f"{setting.where} {unwise.name} {unwise.why}; {unwise.instead}"
            if setting.where == "env"
            else f"{setting.where}: {unwise.name} {unwise.why}; {unwise.instead}"
            for unwise in preset.unwise
            for setting in settings
            if setting.name == unwise.name and unwise.is_harmful(setting.value, interfaces)
        )
    )


def unprovable_reason(run: Run, preset: Preset, nodes: Sequence[Node]) -> str | None:
    """Return why the proof that the run requires is impossible; None if it is not."""
    if run.verify != "require":
        return None
    if not preset.promises:
        return f"its network preset {preset.name} promises no RDMA"
    return "it has 1 node, which uses no network" if len(nodes) < 2 else None


def network_plan(
    run: Run, preset: Preset, inventory: Inventory, nodes: Sequence[Node]
) -> NetworkPlan:
    """Return what NCCL's lines must prove; nothing for one node, which uses no network."""
    promises = preset.promises if len(nodes) > 1 else ""
    return NetworkPlan(
        preset=preset.name,
        promises=promises,
        interfaces=min(node.efa for node in nodes) if promises == "efa" else 0,
        gpudirect=bool(promises) and _gpudirect(promises, inventory.instance_type, nodes),
        verify=run.verify or "auto",
    )


def _gpudirect(promises: str, instance_type: str, nodes: Sequence[Node]) -> bool:
    """Return whether a connection without GPUDirect RDMA is a failure.

    With EFA it is one on the types for which the plugin requires GPUDirect RDMA (aws-ofi-nccl,
    `gdr_required` in src/platform-aws.cpp, 2026-11-20); otherwise if every node has GPUs.
    """
    if promises != "efa":
        return all(node.gpus > 0 for node in nodes)
    entry = catalogue().get(instance_type)
    return entry is not None and entry.rdma.gpudirect == "yes"


def has_rdma(node: Node) -> bool:
    """Return whether bootstrap has found an RDMA device on the node."""
    return bool(node.efa or node.hcas)


def is_examined(node: Node) -> bool:
    """Return whether bootstrap has examined the node: it always finds Open MPI at least."""
    return bool(node.software or node.efa or node.hcas)


def _value(setting: PresetVariable, needs: NodeNeeds | None, nodes: Sequence[Node]) -> str:
    """Return the setting's value on these nodes; empty if the setting does not apply."""
    if setting.value == INTERFACE:
        return _common(node.interface for node in nodes)
    if setting.value == HCAS:
        devices = _common(",".join(needs.devices(node)) for node in nodes) if needs else ""
        return f"={devices}" if devices else ""
    return setting.value


def _common(values: Iterable[str]) -> str:
    """Return the value that all have in common; empty if they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else ""
