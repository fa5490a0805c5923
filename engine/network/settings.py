"""The variables of each network preset, as data, and those that a user had better not set.

Each has its reason, the versions it holds for and its source; docs/rdma.md shows the same tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass

EFA_TABLE = "aws-ofi-nccl, doc/efa-env-var.md, 2026-11-20"
CHEATSHEET = "awsome-distributed-ai, efa-cheatsheet.md, 2026-11-20"
NCCL_TESTS = "awsome-distributed-ai, nccl-tests-ami.sbatch, 2026-11-20"
PLATFORM = "aws-ofi-nccl, src/platform-aws.cpp, 2026-11-20"
NCCL_DOCS = "NCCL user guide, Environment Variables, 2026-11-20"
TI_ONE = "TI-ONE's documentation of RDMA on HCC clusters, 2026-11-20"
ANY = "all"

INTERFACE = "the node's interface"
"""A value that is the name of the interface with the node's private address, as bootstrap found it;
left out where the nodes' names differ or are not known."""

HCAS = "the node's devices"
"""A value that names the preset's RDMA devices, as bootstrap found them; left out likewise."""


@dataclass(frozen=True)
class Setting:
    """A variable of a preset. `families`: only on instance types of these; empty for all."""

    name: str
    value: str
    reason: str
    versions: str
    source: str
    families: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unwise:
    """A variable that is obsolete or does harm where the preset is one of `presets`.

    `values` are those that do; empty for any value.
    """

    name: str
    why: str
    instead: str
    source: str
    presets: tuple[str, ...]
    values: tuple[str, ...] = ()


_LINES = Setting(
    "NCCL_DEBUG", "INFO", "NCCL prints which network it took; without that nothing is proven",
    ANY, NCCL_DOCS,
)  # fmt: skip
_SOCKETS = Setting(
    "NCCL_SOCKET_IFNAME", "^docker,lo,veth",
    "ranks find each other over an address that other nodes reach; names of interfaces differ"
    " between types and images",
    ANY, NCCL_TESTS,
)  # fmt: skip
_GLOO = Setting(
    "GLOO_SOCKET_IFNAME", INTERFACE,
    "Gloo knows no exclusions, and takes the address that the own host name has: on many images"
    " 127.0.1.1, which no other node reaches",
    ANY, "TI-ONE sets it too; how Gloo looks is from memory",
)  # fmt: skip
_HCA = Setting(
    "NCCL_IB_HCA", HCAS, "devices of another link layer, for storage, stay out of NCCL's way",
    ANY, NCCL_DOCS,
)  # fmt: skip

_TI_ONE_SETTINGS = tuple(
    Setting(name, value, reason, versions, TI_ONE)
    for name, value, reason, versions in (
        ("NCCL_IB_GID_INDEX", "3", "the GID of RoCE v2 over IPv4 there", ANY),
        ("NCCL_IB_SL", "3", "the service level that the fabric keeps free of loss", ANY),
        ("NCCL_CHECK_DISABLE", "1", "no checks of arguments; NCCL's name is NCCL_CHECKS_DISABLE",
         "none known"),
        ("NCCL_P2P_DISABLE", "0", "GPUs of a node use NVLink", ANY),
        ("NCCL_IB_DISABLE", "0", "NCCL uses its RDMA transport", ANY),
        ("NCCL_LL_THRESHOLD", "16384", "bytes up to which the protocol of low latency is taken",
         "before NCCL 2.5 (from memory)"),
        ("NCCL_IB_CUDA_SUPPORT", "1", "GPUDirect RDMA",
         "before NCCL 2.4, NCCL_NET_GDR_LEVEL since (from memory)"),
        ("NCCL_IB_HCA", "mlx5_bond", "the bonded devices of these machines, by their prefix", ANY),
        ("NCCL_NET_GDR_LEVEL", "2", "GPUDirect RDMA between devices below PCI switches", ANY),
        ("NCCL_IB_QPS_PER_CONNECTION", "4", "one connection takes several paths", ANY),
        ("NCCL_IB_TC", "160", "the traffic class that the fabric keeps free of loss", ANY),
        ("NCCL_PXN_DISABLE", "1", "no way by another GPU's network card", "NCCL 2.12 and later"),
        ("NCCL_IB_TIMEOUT", "24", "a busy fabric is waited for", ANY),
        ("NCCL_DEBUG", "INFO", _LINES.reason, ANY),
        ("NCCL_SOCKET_IFNAME", "eth0", "the interface of these machines", ANY),
        ("GLOO_SOCKET_IFNAME", "eth0", "the interface of these machines", ANY),
        ("TCCL_TOPO_AFFINITY", "4", "of TCCL, Tencent's own NCCL", "TCCL"),
    )
)  # fmt: skip
"""The values are TI-ONE's; the reasons are the variables' meanings in NCCL's user guide, or from
memory where that says nothing."""

SETTINGS: Mapping[str, tuple[Setting, ...]] = {
    "efa": (
        _LINES,
        _SOCKETS,
        _GLOO,
        Setting(
            "FI_EFA_USE_HUGE_PAGE", "0",
            "fork() fails with ENOMEM where a process holds huge pages: PyTorch's data loaders",
            "libfabric with EFA, all", CHEATSHEET,
        ),
        Setting(
            "NCCL_SHM_USE_CUDA_MEMCPY", "1",
            "GPUs of one node that talk through the host's memory are twice as fast",
            "NCCL 2.12 and later (from memory)", EFA_TABLE, ("g5", "g6"),
        ),
        Setting(
            "NCCL_MNNVL_ENABLE", "1", "GPUs of one UltraServer reach each other by NVLink",
            "NCCL 2.21 and later (from memory)",
            "awsome-distributed-ai, its manifest for GB200, 2026-11-20", ("p6e-gb200",),
        ),
        Setting(
            "NCCL_NVLS_ENABLE", "1", "reductions are done in the NVLink switch",
            "NCCL 2.18.5 and later", "awsome-distributed-ai, its manifest for GB200, 2026-11-20",
            ("p6e-gb200",),
        ),
    ),
    "infiniband": (
        _LINES,
        _SOCKETS,
        _GLOO,
        _HCA,
    ),
    "roce": (
        _LINES,
        _SOCKETS,
        _GLOO,
        _HCA,
    ),
    "hcc": _TI_ONE_SETTINGS,
    "tcp": (
        Setting(
            "NCCL_NET", "Socket", "NCCL takes sockets where there is something faster too",
            ANY, NCCL_DOCS,
        ),
        _SOCKETS,
        _GLOO,
    ),
    "none": (),
}  # fmt: skip
"""The variables of each preset."""

_RDMA = ("efa", "infiniband", "roce", "hcc")

UNWISE: tuple[Unwise, ...] = (
    Unwise(
        "FI_EFA_USE_DEVICE_RDMA", "is obsolete since aws-ofi-nccl 1.7 and libfabric 1.18",
        "leave it out", EFA_TABLE, ("efa",),
    ),
    Unwise(
        "FI_EFA_FORK_SAFE", "is obsolete: aws-ofi-nccl sets it where it is needed",
        "leave it out", EFA_TABLE, ("efa",),
    ),
    Unwise(
        "RDMAV_FORK_SAFE", "is not to be set with EFA",
        "leave it out; for ENOMEM in fork() there is FI_EFA_USE_HUGE_PAGE=0, which is set",
        CHEATSHEET, ("efa",),
    ),
    Unwise(
        "FI_EFA_SET_CUDA_SYNC_MEMOPS", "was for EFA's installer before 1.29.1",
        "leave it out", EFA_TABLE, ("efa",),
    ),
    Unwise(
        "FI_EFA_ENABLE_SHM_TRANSFER", "changes nothing for NCCL", "leave it out", EFA_TABLE,
        ("efa",),
    ),
    Unwise(
        "NCCL_PROTO", "was needed up to aws-ofi-nccl 1.5, and now keeps NCCL from faster protocols",
        "leave it out", EFA_TABLE, ("efa",),
    ),
    *(
        Unwise(name, "hides the instance type's own value, which aws-ofi-nccl sets", "leave it out",
               PLATFORM, ("efa",))
        for name in (
            "NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_NVLSTREE_MAX_CHUNKSIZE",
            "NCCL_NVLS_CHUNKSIZE", "NCCL_NET_FORCE_FLUSH", "NCCL_NETDEVS_POLICY", "NCCL_TOPO_FILE",
            "NCCL_TUNER_PLUGIN",
        )
    ),
    *(
        Unwise(name, "tunes sockets, and costs processors with EFA", "leave it out",
               EFA_TABLE, ("efa",))
        for name in ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_MIN_NCHANNELS")
    ),
    Unwise(
        "NCCL_IB_DISABLE", "makes NCCL fall back to sockets", "leave it out, or say `network: tcp`",
        NCCL_DOCS, ("infiniband", "roce", "hcc"), ("1",),
    ),
    Unwise(
        "NCCL_NET", "makes NCCL take sockets", "leave it out, or say `network: tcp`",
        NCCL_DOCS, _RDMA, ("Socket",),
    ),
    Unwise(
        "NCCL_NET_PLUGIN", "keeps NCCL from the plugin that speaks EFA",
        "leave it out, or say `network: tcp`", NCCL_DOCS, ("efa",), ("none",),
    ),
    Unwise(
        "NCCL_P2P_DISABLE", "takes NVLink away from the GPUs of a node", "leave it out",
        NCCL_DOCS, (*_RDMA, "tcp", "none"), ("1",),
    ),
    Unwise(
        "NCCL_IB_CUDA_SUPPORT", "was replaced by NCCL_NET_GDR_LEVEL in NCCL 2.4 (from memory)",
        "leave it out", NCCL_DOCS, ("efa", "infiniband", "roce"),
    ),
    Unwise(
        "NCCL_LL_THRESHOLD", "is read no more since NCCL 2.5 (from memory)", "leave it out",
        NCCL_DOCS, ("efa", "infiniband", "roce"),
    ),
    Unwise(
        "NCCL_IB_GID_INDEX", "is found by NCCL 2.21 and later, on each node by itself",
        "leave it out where NCCL is not older", NCCL_DOCS, ("roce",),
    ),
    *(
        Unwise(name, "names an interface that EC2's instances do not have",
               "leave it out: the preset sets it", "EC2 names them ens… or enp… (from memory)",
               ("efa",), ("eth0",))
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    ),
    Unwise(
        "NCCL_DEBUG", "takes away the lines by which RDMA is proven",
        "leave it out, or say `verify: off`", NCCL_DOCS, _RDMA, ("WARN", "VERSION"),
    ),
    Unwise(
        "NCCL_DEBUG_FILE", "puts the lines by which RDMA is proven into a file",
        "leave it out, or say `verify: off`", NCCL_DOCS, _RDMA,
    ),
)  # fmt: skip
"""What is warned of where a user sets it."""
