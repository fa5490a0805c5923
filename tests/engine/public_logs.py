"""What logs that people published say of the network; lines are made anew.

The formats are NCCL's (src/debug.cc, src/init.cc, src/transport/net.cc, src/transport/net_ib) and
aws-ofi-nccl's (src/nccl_ofi_net.cpp). All sources were read on 2026-11-22.
"""

from dataclasses import dataclass

G = "https://github.com/"


@dataclass(frozen=True)
class PublicLog:
    """What a published log says of the network; `{}` is where NCCL's host, pid and thread were.

    `proves` and `faults` are what Proof says of node0, in parts of the texts.
    """

    source: str
    promise: str
    lines: tuple[str, ...]
    proves: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


_CLOUDWATCH = "  | 2025-05-22T14:26:33.405-07:00 | "
_EFA = ("uses EFA",)
_SOCKETS = ("uses sockets instead of EFA",)

LOGS = (
    PublicLog(
        G + "aws/aws-ofi-nccl/issues/889",
        "efa",
        (
            _CLOUDWATCH + "{}NET/OFI OFI fi_getinfo() call failed: No data available",
            _CLOUDWATCH + "{}Using network Socket",
        ),
        faults=_SOCKETS,
    ),
    PublicLog(
        G + "NVIDIA/nccl/issues/1597",
        "efa",
        ("{}NET/OFI Selected Provider is efa (found 16 nics)", "{}Using network Libfabric"),
        proves=("uses EFA: 16 interfaces",),
    ),
    PublicLog(
        G + "aws/aws-ofi-nccl/issues/24",
        "efa",
        (
            "[1,7]<stdout>:{}NET/OFI Selected Provider is efa",
            "[1,7]<stdout>:{}Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0",
        ),
        proves=(*_EFA, "transfers data through the host's memory"),
    ),
    PublicLog(
        G + "aws/aws-ofi-nccl/issues/1020",
        "efa",
        ("{}NET/OFI OFI fi_getinfo() call failed: No data available", "{}Using network Socket"),
        faults=("after `NET/OFI OFI fi_getinfo() call failed: No data available`",),
    ),
    PublicLog(
        G + "aws/aws-ofi-nccl/issues/161",
        "efa",
        ("{}NET/OFI Selected Provider is efa", "{}Using network AWS Libfabric"),
        proves=_EFA,
    ),
    PublicLog(
        G + "determined-ai/environments/pull/169",
        "efa",
        ("{}NET/OFI Selected Provider is cxi", "{}Using network AWS Libfabric"),
        faults=("uses libfabric's provider cxi instead of EFA",),
    ),
    PublicLog(
        G + "Mellanox/nv_peer_memory/issues/56",
        "infiniband",
        (
            "{}NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
            "{}NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>",
            "{}Ring 00 : 3 -> 0 [send] via NET/IB/0/GDRDMA",
        ),
        proves=("uses InfiniBand: 1 IB devices", "uses GPUDirect RDMA"),
    ),
    PublicLog(
        G + "NVIDIA/nccl/issues/1804",
        "roce",
        (
            "{}NET/Plugin: Could not find: libnccl-net.so.",
            "{}NET/IB : Using [0]={{[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE}} [RO]; OOB e0:1.2.3.4<0>",
            "{}Using network IB",
        ),
        proves=("uses RoCE: 1 RoCE devices",),
    ),
    PublicLog(
        G + "siderolabs/docs/issues/566",
        "infiniband",
        (
            "{}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [RO]; OOB e0:1.2.3.4<0>",
            "{}Using network IB",
            "{}Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
        ),
        proves=("uses InfiniBand: 3 IB devices", "uses GPUDirect RDMA"),
    ),
    PublicLog(
        G + "NVIDIA/nccl/issues/398",
        "efa",
        ("{}Ring 00 : 15 -> 0 [send] via NET/Socket/0",),
        faults=_SOCKETS,
    ),
    PublicLog(
        G + "NVIDIA/nccl/issues/1814",
        "roce",
        ("{}Channel 06/0 : 36[4] -> 20[4] [send] via NET/IBext_v8/3",),
        proves=("uses RoCE", "transfers data through the host's memory"),
    ),
    PublicLog(
        G + "aws/aws-ofi-nccl/issues/803",
        "efa",
        (
            "{}NET/OFI Initializing aws-ofi-nccl 1.12.1-aws",
            "{}NET/OFI Selected Provider is tcp (found 1 nics)",
            "{}Using network AWS Libfabric",
            "{}Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0",
        ),
        faults=("uses libfabric's provider tcp instead of EFA",),
    ),
    PublicLog(
        G + "NVIDIA/nccl/issues/527",
        "efa",
        (
            "{}NET/OFI Using aws-ofi-nccl 1.4.0aws",
            "{}NET/OFI Selected Provider is efa",
            "{}Using network AWS Libfabric",
        ),
        proves=_EFA,
    ),
    PublicLog(
        G + "aws/aws-ofi-nccl/issues/64",
        "efa",
        ("{}Channel 01 : 9[101d0] -> 0[101c0] [receive] via NET/AWS Libfabric/0",),
        proves=("transfers data through the host's memory",),
    ),
    PublicLog(
        G + "NVIDIA/nccl/issues/959",
        "efa",
        ("{}NET/Plugin : No plugin found (libnccl-net.so).", "{}Using network Socket"),
        faults=("after `NET/Plugin : No plugin found (libnccl-net.so)`; check LD_LIBRARY_PATH",),
    ),
    PublicLog(
        G + "NVIDIA/nccl-tests/issues/208",
        "efa",
        ("{}NET/Plugin: No plugin found (libnccl-net.so)", "{}Using network Socket"),
        faults=("after `NET/Plugin: No plugin found (libnccl-net.so)`",),
    ),
    PublicLog(
        G + "NVIDIA/nccl-tests/issues/128",
        "infiniband",
        ("{}Channel 00/0 : 2[50000] -> 6[63000] [send] via NET/IB/0",),
        proves=("uses InfiniBand", "transfers data through the host's memory"),
    ),
    PublicLog(
        G + "NVIDIA/nccl/issues/952",
        "infiniband",
        (
            "{}P2P plugin IBext",
            "{}Using network IBext",
            "{}Channel 00/0 : 1[0] -> 2[0] [send] via NET/IBext/0/GDRDMA/Shared",
        ),
        proves=("uses InfiniBand", "uses GPUDirect RDMA"),
    ),
)
