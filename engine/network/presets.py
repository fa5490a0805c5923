"""Network presets: which one a run gets, its variables, and the transport that it promises."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from config.catalogue.instance_types import catalogue
from config.run.run_file import Run
from engine.network.promise import NetworkPlan
from engine.network.settings import BAD_SETTINGS, HCAS, INTERFACE, SETTINGS, Setting
from nodes.inventory import Inventory, Node

PresetName = Literal["efa", "infiniband", "roce", "hcc", "tcp", "none"]

HCC_GPUS = 8
HCC_DEVICE = "mlx5_bond"
"""TI-ONE uses its preset for jobs with 2 nodes or more with 8 whole GPUs each (its documentation,
2026-11-20). The device's name is the value of its NCCL_IB_HCA."""


@dataclass(frozen=True)
class Preset:
    """A preset. `promises` is the transport that NCCL's lines must prove, empty for none."""

    name: PresetName
    promises: Literal["efa", "infiniband", "roce", ""]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The preset's variables, with reasons and sources."""
        return SETTINGS[self.name]

    def environment(self, nodes: Sequence[Node], instance_type: str) -> dict[str, str]:
        """Return the variables of every process, the same on all `nodes`."""
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
"""The presets by name."""


def choose_preset(run: Run, nodes: Sequence[Node]) -> Preset:
    """Return the preset that the run names; for `auto` the one for the hardware of all its nodes.

    If bootstrap has not examined the hardware, because an earlier gpuctl launched the cluster,
    `auto` sets nothing.
    """
    if run.network != "auto":
        return PRESETS[run.network]
    if not all(_is_examined(node) for node in nodes):
        return PRESETS["none"]
    order: tuple[PresetName, ...] = ("efa", "hcc", "infiniband", "roce")
    return PRESETS[next((name for name in order if misfit_reason(name, nodes) is None), "tcp")]


def misfit_reason(preset: str, nodes: Sequence[Node]) -> str | None:
    """Return why the preset does not fit these nodes; None if it fits.

    Any preset fits nodes with unknown hardware.
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
    lacking = next((node for node in nodes if _is_examined(node) and not has(node)), None)
    return None if lacking is None else f"{lacking.name} has no {needed}"


def warnings(preset: Preset, environment: Mapping[str, object]) -> tuple[str, ...]:
    """Return a line per variable of the user that is obsolete, harmful or hides the proof."""
    return tuple(
        f"env {one.name} {one.why}; {one.instead}"
        for one in BAD_SETTINGS
        if preset.name in one.presets
        and one.name in environment
        and (not one.values or environment[one.name] in one.values)
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
    """Return whether a connection without GPUDirect RDMA is a fault.

    With EFA it is one on the types for which the plugin requires GPUDirect RDMA (aws-ofi-nccl,
    `gdr_required` in src/platform-aws.cpp, 2026-11-20); otherwise if every node has GPUs.
    """
    if promises != "efa":
        return all(node.gpus > 0 for node in nodes)
    entry = catalogue().get(instance_type)
    return entry is not None and entry.rdma.gpudirect == "yes"


def _is_examined(node: Node) -> bool:
    """Return whether bootstrap has examined the node: it always finds Open MPI at least."""
    return bool(node.software or node.efa or node.hcas)


def _has(layer: str, name: str = "") -> Callable[[Node], bool]:
    return lambda node: bool(_devices(node, layer, name))


def _devices(node: Node, layer: str, name: str = "") -> tuple[str, ...]:
    """Return the node's RDMA devices of a link layer whose names begin with `name`."""
    pairs = (hca.partition(":") for hca in node.hcas)
    return tuple(device for device, _, of in pairs if of == layer and device.startswith(name))


_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}

_NEEDS: Mapping[str, tuple[Callable[[Node], bool], str]] = {
    "efa": (lambda node: node.efa > 0, "EFA interface"),
    "infiniband": (_has("InfiniBand"), "InfiniBand device"),
    "roce": (_has("Ethernet"), "RoCE device"),
    "hcc": (_has("Ethernet", HCC_DEVICE), f"device {HCC_DEVICE}_*"),
}
"""The hardware that a node needs for a preset: a check, and its name."""


def _value(setting: Setting, preset: PresetName, nodes: Sequence[Node]) -> str:
    """Return the setting's value on these nodes; empty if the setting does not apply."""
    if setting.value == INTERFACE:
        return _common(node.interface for node in nodes)
    if setting.value == HCAS:
        devices = _common(",".join(_devices(node, _LAYERS[preset])) for node in nodes)
        return f"={devices}" if devices else ""
    return setting.value


def _common(values: Iterable[str]) -> str:
    """Return the value that all have in common; empty if they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else ""
