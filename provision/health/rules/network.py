"""Rules about the network: EFA, the way between nodes, and measured speed."""

from collections.abc import Iterator
from statistics import median

from provision.health.facts import NodeFacts
from provision.health.model import REBOOT, REPLACE, AllFacts, Deviation, Rule, from_checks

_EFA_DEVICES = "EFA devices"


def _check_efa(_: str, facts: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return missing devices.

    libfabric's count decides, which the node's checks repeat for ten seconds: p5en has its devices
    late. Before a run there is only the kernel's, which does not exist in a container.
    """
    if facts.checks is not None or not facts.efa:
        return from_checks(facts, _EFA_DEVICES)
    if facts.efa >= fleet.expected.efa:
        return []
    return [Deviation(_EFA_DEVICES, str(fleet.expected.efa), str(facts.efa))]


EFA = Rule(
    id="efa",
    reads="`fi_info -p efa -t FI_EP_RDM` (three times within 10 s); before a run the devices in"
    " /sys/class/infiniband",
    expects="the number of EFA interfaces of the launch",
    severity="isolate",
    remedy=REPLACE,
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 2",
    check=_check_efa,
    is_short=True,
)


_GPUDIRECT = "GPUDirect RDMA"
_TRANSPORT_OF_A_RUN = "the transport of a run shows whether NCCL uses it: `gpuctl results RUN`"


def _check_gpudirect(_: str, facts: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return a driver that says that it cannot; that libfabric finds no device is only a hint."""
    expected = fleet.expected
    if not expected.has_gpudirect or not expected.efa:
        return []
    if facts.p2p is not None:
        without = [device for device in facts.p2p if not device.startswith("NVIDIA")]
        seen = f"{len(without)} of {len(facts.p2p)} EFA devices without it"
        return [Deviation(_GPUDIRECT, "peer memory on every EFA device", seen)] if without else []
    if facts.hmem is None or facts.hmem >= expected.efa:
        return []
    seen = f"libfabric finds {facts.hmem}"
    required = f"{expected.efa} EFA devices with GPU memory"
    return [Deviation(_GPUDIRECT, required, seen, "watch", _TRANSPORT_OF_A_RUN)]


GPUDIRECT = Rule(
    id="gpudirect",
    reads="/sys/class/infiniband/*/device/p2p, or else `fi_info -p efa -t FI_EP_RDM -c FI_HMEM`",
    expects="NVIDIA's peer memory for every device, on types with GPUDirect RDMA",
    severity="reboot",
    remedy=f"check that `lsmod` has efa and nvidia (the driver must be there before EFA), then"
    f" {REBOOT}",
    source="p2p_show in amzn-drivers, kernel/linux/efa/src/efa_sysfs.c; aws-ofi-nccl #889"
    " (2026-11-23)",
    check=_check_gpudirect,
)


_LEAST_LOCKED_KIB = 16 * 1024 * 1024


def _check_memlock(_: str, facts: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return a limit below 16 GiB, on nodes with EFA."""
    limit = facts.memlock_kib
    if not fleet.expected.efa or limit is None or limit >= _LEAST_LOCKED_KIB:
        return []
    return [Deviation("locked memory", "unlimited, or 16 GiB", f"{limit / 1024:.0f} MiB")]


MEMLOCK = Rule(
    id="memlock",
    reads="`ulimit -l` of a login",
    expects="unlimited, or 16 GiB at least, with EFA",
    severity="watch",
    remedy="set `* - memlock unlimited` in /etc/security/limits.d on the node",
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 2",
    check=_check_memlock,
    is_short=True,
)


def _check_names(_: str, facts: NodeFacts, fleet: AllFacts) -> Iterator[Deviation]:
    """Yield each name of a node that this node does not know, or knows with another address."""
    if facts.names is None:
        return
    for name, address in fleet.expected.addresses.items():
        seen = facts.names.get(name, "nothing")
        if seen != address:
            yield Deviation(f"address of {name}", address, seen)


NAMES = Rule(
    id="names",
    reads="`getent hosts`",
    expects="the private address of each node of the cluster",
    severity="isolate",
    remedy="`gpuctl up` writes the names again",
    source="docs/develop/node-health.md",
    check=_check_names,
)


def _check_node_ssh(name: str, _: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return the head's complaint about this node."""
    if name not in fleet.unreached:
        return []
    return [Deviation("ssh from the head", "a login", fleet.unreached[name])]


NODE_SSH = Rule(
    id="node-ssh",
    reads="`ssh ADDRESS true` on the head, for every other node",
    expects="a login",
    severity="isolate",
    remedy="`gpuctl up` renews keys and names; the security group and the image's firewall must let"
    " nodes reach each other",
    source="docs/look-up/modes.md",
    check=_check_node_ssh,
)


_LOOPBACK = "all_reduce over the network of one node"
_LEAST_PART = 0.5
_LEAST_NODES = 3
_BISECT = "`gpuctl bisect` measures it again, alone and in pairs"


def _check_loopback(_: str, facts: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return a test that failed, or is far slower than that of the others."""
    own = facts.loopback
    if own is None:
        return []
    if own.error:
        return [Deviation(_LOOPBACK, "no wrong value", own.error)]
    speeds = [fact.loopback.gbps for fact in fleet.facts.values() if fact.loopback]
    usual = median(speeds)
    if len(speeds) < _LEAST_NODES or own.gbps >= _LEAST_PART * usual:
        return []
    return [Deviation(_LOOPBACK, f"{usual:.3g} GB/s", f"{own.gbps:.3g} GB/s", "watch", _BISECT)]


LOOPBACK = Rule(
    id="loopback",
    reads="nccl-tests' all_reduce on the node with NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1",
    expects="no wrong value; half of the median of three nodes or more is only for watching",
    severity="isolate",
    remedy=REPLACE,
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 5",
    check=_check_loopback,
)


def _check_pairs(name: str, _: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return what the bisect says about the node."""
    if name not in fleet.slow:
        return []
    return [Deviation("speed", "that of the others", fleet.slow[name])]


PAIRS = Rule(
    id="pairs",
    reads="a [bisect](../do/bisect.md) of the cluster: each node alone, every pair, rings",
    expects="at most 20 % below the median",
    severity="isolate",
    remedy=REPLACE,
    source="docs/do/bisect.md",
    check=_check_pairs,
)
