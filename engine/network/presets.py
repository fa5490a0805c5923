"""Which network preset a run gets, what it sets, and what it promises to be proven."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from config.catalogue.instance_types import catalogue
from config.run.run_file import Run
from engine.network.promise import NetworkPlan
from engine.network.settings import HCAS, INTERFACE, SETTINGS, UNWISE, Setting
from nodes.inventory import Inventory, Node

PresetName = Literal["efa", "infiniband", "roce", "hcc", "tcp", "none"]

HCC_GPUS = 8
HCC_DEVICE = "mlx5_bond"
"""TI-ONE has its preset where a job has 2 nodes or more with 8 whole GPUs each (its documentation,
2026-11-20); the device's name is its NCCL_IB_HCA."""


@dataclass(frozen=True)
class Preset:
    """A preset; `promises` is the transport that NCCL's lines must show, empty for none."""

    name: PresetName
    promises: Literal["efa", "infiniband", "roce", ""]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Its variables, with reasons and sources."""
        return SETTINGS[self.name]

    def environment(self, nodes: Sequence[Node], instance_type: str) -> dict[str, str]:
        """The variables of every process, the same on all `nodes`."""
        found = {
            one.name: _value(one, self.name, nodes)
            for one in self.settings
            if not one.families or instance_type.partition(".")[0] in one.families
        }
        return {name: value for name, value in found.items() if value}


PRESETS: Mapping[PresetName, Preset] = {
    "efa": Preset("efa", "efa"),
    "infiniband": Preset("infiniband", "infiniband"),
    "roce": Preset("roce", "roce"),
    "hcc": Preset("hcc", "roce"),
    "tcp": Preset("tcp", ""),
    "none": Preset("none", ""),
}
"""Every preset by its name."""


def choose(run: Run, nodes: Sequence[Node]) -> Preset:
    """The preset that the run names, or with `auto` that of the hardware of all its nodes.

    Where nobody looked at the hardware `auto` sets nothing: the cluster was brought up by an
    earlier gpuctl.
    """
    if run.network != "auto":
        return PRESETS[run.network]
    if not all(_known(node) for node in nodes):
        return PRESETS["none"]
    order: tuple[PresetName, ...] = ("efa", "hcc", "infiniband", "roce")
    return PRESETS[next((name for name in order if fits(name, nodes) is None), "tcp")]


def fits(preset: str, nodes: Sequence[Node]) -> str | None:
    """Why these nodes cannot have the preset, in some words; None where they can.

    Nodes of which nobody knows the hardware can have any.
    """
    if preset == "hcc":
        if len(nodes) < 2:
            return "it is for 2 nodes or more, the run has 1"
        small = next((node for node in nodes if node.gpus < HCC_GPUS), None)
        if small is not None:
            return f"it is for nodes with {HCC_GPUS} GPUs, {small.name} has {small.gpus}"
    if preset not in _NEEDS:
        return None
    has, needed = _NEEDS[preset]
    lacking = next((node for node in nodes if _known(node) and not has(node)), None)
    return None if lacking is None else f"{lacking.name} has no {needed}"


def warnings(preset: Preset, environment: Mapping[str, object]) -> tuple[str, ...]:
    """A line for each variable of the user's that is obsolete, does harm or hides the proof."""
    return tuple(
        f"env {one.name} {one.why}; {one.instead}"
        for one in UNWISE
        if preset.name in one.presets
        and one.name in environment
        and (not one.values or environment[one.name] in one.values)
    )


def unprovable(run: Run, preset: Preset, nodes: Sequence[Node]) -> str | None:
    """Why nothing can be proven although the run requires it; None where it can or need not."""
    if run.verify != "require":
        return None
    if not preset.promises:
        return f"its network preset is {preset.name}, which promises no RDMA"
    return "it has 1 node, which uses no network" if len(nodes) < 2 else None


def network_plan(
    run: Run, preset: Preset, inventory: Inventory, nodes: Sequence[Node]
) -> NetworkPlan:
    """What NCCL's lines must prove. One node uses no network, so it promises nothing."""
    promises = preset.promises if len(nodes) > 1 else ""
    return NetworkPlan(
        preset=preset.name,
        promises=promises,
        interfaces=min(node.efa for node in nodes) if promises == "efa" else 0,
        gpudirect=bool(promises) and _gpudirect(promises, inventory.instance_type, nodes),
        verify=run.verify or "auto",
    )


def _gpudirect(promises: str, instance_type: str, nodes: Sequence[Node]) -> bool:
    """Whether a connection without GPUDirect RDMA is a fault.

    With EFA on the types for which the plugin insists on it (aws-ofi-nccl, `gdr_required` in
    src/platform-aws.cpp, 2026-11-20); elsewhere wherever there is a GPU.
    """
    if promises != "efa":
        return all(node.gpus > 0 for node in nodes)
    entry = catalogue().get(instance_type)
    return entry is not None and entry.rdma.gpudirect == "yes"


def _known(node: Node) -> bool:
    """Whether bootstrap has looked at the node: Open MPI at least it always finds."""
    return bool(node.software or node.efa or node.hcas)


def _has(layer: str, name: str = "") -> Callable[[Node], bool]:
    return lambda node: bool(_devices(node, layer, name))


def _devices(node: Node, layer: str, name: str = "") -> tuple[str, ...]:
    """The names of the node's RDMA devices of a link layer, that begin with `name`."""
    pairs = (hca.partition(":") for hca in node.hcas)
    return tuple(device for device, _, of in pairs if of == layer and device.startswith(name))


_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}

_NEEDS: Mapping[str, tuple[Callable[[Node], bool], str]] = {
    "efa": (lambda node: node.efa > 0, "EFA interface"),
    "infiniband": (_has("InfiniBand"), "InfiniBand device"),
    "roce": (_has("Ethernet"), "RoCE device"),
    "hcc": (_has("Ethernet", HCC_DEVICE), f"device {HCC_DEVICE}_*"),
}
"""What a node must have for a preset, and the name of that."""


def _value(setting: Setting, preset: PresetName, nodes: Sequence[Node]) -> str:
    """The setting's value on these nodes; empty where it is to be left out."""
    if setting.value == INTERFACE:
        return _same(node.interface for node in nodes)
    if setting.value == HCAS:
        devices = _same(",".join(_devices(node, _LAYERS[preset])) for node in nodes)
        return f"={devices}" if devices else ""
    return setting.value


def _same(values: Iterable[str]) -> str:
    """What all values are; empty where they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else ""
