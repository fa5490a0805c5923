"""What `up` of a file with `hosts` is about to write on machines, and the cluster that is ready."""

from typing import TYPE_CHECKING, Any

from config.command_text import command_text
from config.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from operations.hosts import HostsPlan, Inventory


def plan_lines(plan: "HostsPlan") -> "Iterator[str]":
    """Yield the machines, and everything that gpuctl writes on each of them."""
    name = plan.file.name
    yield f"Cluster {name}: {counted(len(plan.hosts), 'machine')} that you have"
    if plan.joins:
        owner = plan.mark.partition(f"{name} ")[2]
        yield f"It exists, {owner}: you use it too, with a key that gpuctl adds."
    yield ""
    for rank, each in enumerate(plan.hosts):
        yield f"  node{rank:<4} {each.host.address:<24} {each.internal:<15} {each.machine.text}"
    for folder, source in plan.shared.items():
        yield f"  all of them have {folder} ({source})"
    yield ""
    yield f"On each of them gpuctl writes, as {plan.user}:"
    width = max(len(path) for path, _ in plan.footprint)
    for path, purpose in plan.footprint:
        yield f"  {path:<{width}}  {purpose}"
    yield f"{command_text('gpuctl down {}', name)} removes it, when nobody else uses the cluster."
    if plan.user != "root":
        yield (
            "As root it would also read the kernel's log for errors of GPUs, raise the limit of"
            " locked memory for RDMA, and give the nodes names that every program resolves."
        )
    if plan.accepted:
        yield ""
        yield "Host keys that gpuctl has not seen before, and pins:"
        yield from (f"  {name:<24} {fingerprint}" for name, fingerprint in plan.new_host_keys)


def plan_json(plan: "HostsPlan") -> dict[str, Any]:
    """Return the plan as JSON."""
    return {
        "cluster": plan.file.name,
        "hosts": [
            {
                "name": f"node{rank}",
                "address": each.host.address,
                "internal": each.internal,
                "machine_id": each.machine.id,
                "system": each.machine.system,
                "python": each.machine.python,
                "gpus": each.machine.gpus,
            }
            for rank, each in enumerate(plan.hosts)
        ],
        "shared": plan.shared,
        "writes": [{"path": path, "purpose": purpose} for path, purpose in plan.footprint],
        "new_host_keys": dict(plan.new_host_keys),
    }


def ready_lines(inventory: "Inventory", program: str) -> "Iterator[str]":
    """Yield the nodes with their network and software, and which commands come next."""
    name = inventory.cluster
    yield f"\nCluster {name} is ready"
    for node in inventory.nodes:
        software = ", ".join(f"{key} {version}" for key, version in sorted(node.software.items()))
        devices = ", ".join(node.hcas) or (f"{node.efa} EFA" if node.efa else "no RDMA")
        yield (
            f"  rank {node.rank}  {node.name}  {node.private_ip}  {node.interface}, {devices};"
            f" {software}"
        )
    yield "It costs nothing that gpuctl knows, and has no end."
    yield "Next:"
    yield f"  {program} run RUN_FILE --cluster {name}"
    yield f"  {program} ssh {name}"
    yield f"  {program} down {name}"
