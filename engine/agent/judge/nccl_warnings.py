"""What NCCL and its plugins print about why they failed, in words.

The texts are those of NCCL's sources, `git grep 'WARN("'` in 2.12 to 2.30
(https://github.com/NVIDIA/nccl: src/misc/socket.cc, src/os/linux.cc, src/bootstrap.cc, src/init.cc,
src/misc/shmutils.cc, src/misc/ibvwrap.cc, src/transport/net_ib, src/transport/nvls.cc,
src/mnnvl.cc, src/misc/argcheck.cc, src/include/checks.h), of
aws-ofi-nccl's (https://github.com/aws/aws-ofi-nccl: src/platform-aws.cpp, nccl_ofi_rdma.cpp and
nccl_ofi_sendrecv.cpp) and of libfabric's
(https://github.com/ofiwg/libfabric/blob/main/prov/efa/src/efa_errno.h). The causes of EFA's errors
are those of libfabric's efa_show_help and of
https://github.com/ofiwg/libfabric/pull/10410 (2026-11-26).
"""

from __future__ import annotations

import re
from typing import NamedTuple

WARN = "NCCL WARN"
LAST_ERROR = "Last error:"
"""PyTorch's line before the last warning of NCCL, which NCCL keeps also where it prints none."""
CAUSE, CONSEQUENCE = "nccl", "nccl-peer"
"""Kinds of facts: a cause on the node itself, and what a failure on another node looks like."""

_SOCKETS = {"1": "bootstrap", "2": "proxy", "3": "NET/Socket", "4": "NET/IB"}
"""ncclSocketType (src/include/socket.h)."""
_ENDED = "its process has ended, or its machine has failed"
_RULES = "the security group has to allow all traffic between the nodes"


class NcclWarning(NamedTuple):
    """What a line says: the kind of fact, and the words."""

    kind: str
    text: str


_WARNINGS = tuple(
    (re.compile(pattern), kind, text)
    for pattern, kind, text in (
        (
            r"Cuda failure (?:\d+ )?'([^']*out of memory[^']*)'",
            CAUSE,
            "NCCL had no room in the memory of a GPU",
        ),
        (r"Cuda failure (?:\d+ )?'([^']+)'", CAUSE, r"CUDA failed within NCCL (\1)"),
        (
            r"Error while (?:creating|attaching to) shared memory segment|"
            r"Error: failed to extend \S+ to \d+ bytes|"
            r"Call to (?:posix_fallocate|ftruncate|shm_open|mmap) failed ?: (?:No space|Cannot al)",
            CAUSE,
            "NCCL's shared memory did not fit into /dev/shm",
        ),
        (
            r"Duplicate GPU detected : rank (\d+) and rank (\d+)",
            CAUSE,
            r"ranks \1 and \2 use the same GPU",
        ),
        (
            r"Mismatched NCCL version detected : rank (\d+) version (\d+) rank (\d+) version (\d+)",
            CAUSE,
            r"ranks \1 and \3 have different versions of NCCL (\2 and \4)",
        ),
        (
            r"NCCL version mismatch with remote peer \S+ \(local: (\S+), remote (\S+)\)",
            CAUSE,
            r"the ranks have different versions of NCCL (\1 and \2)",
        ),
        (
            r"no socket interface found|No usable listening interface found|"
            r"NET/Socket : no interface found",
            CAUSE,
            "NCCL found no network interface; does NCCL_SOCKET_IFNAME name one of this node?",
        ),
        (
            r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory .*: CUDA error \d+ '([^']+)'",
            CAUSE,
            r"NVLink SHARP does not work (\1); is nvidia-fabricmanager active, or else set"
            " NCCL_NVLS_ENABLE=0",
        ),
        (
            r"MNNVL \(cliqueSize \d+\) is available but not working",
            CAUSE,
            "NVLink between nodes does not work; check IMEX (`nvidia-imex-ctl -N`), or set"
            " NCCL_MNNVL_ENABLE=0",
        ),
        (
            r"NET/IB : (?:\S+:\d+ )?(?:Got async event : (?=local )|async fatal event.*: )"
            r"([a-z][^\":]+)",
            CAUSE,
            r"an RDMA device of the node failed (\1)",
        ),
        (
            r"NET/OFI (Couldn't (?:open|create|allocate|enable) [^.\"]*)\. RC: -?\d+, ERROR:"
            r" ([^\"]+)",
            CAUSE,
            r"EFA's plugin for NCCL failed: \1 (\2)",
        ),
        (
            r"Invalid NCCL_COMM_ID",
            CAUSE,
            "NCCL_COMM_ID is not ADDRESS:PORT",
        ),
        (
            r"Invalid rank requested : (\d+)/(\d+)",
            CAUSE,
            r"a process asked for rank \1 of \2",
        ),
        (
            r"(\w+) : invalid root (\d+) \(root should be in the 0\.\.(\d+) range\)",
            CAUSE,
            r"\1 was called with root \2 of \3 ranks",
        ),
        (
            r"Failed to initialize any NET plugin",
            CAUSE,
            "NCCL could initialize no network; does NCCL_NET name one that exists?",
        ),
        (
            r"Bootstrap Root : rank (\d+) of (\d+) ranks has already checked in",
            CAUSE,
            r"two processes are rank \1 of \2",
        ),
        (
            r"Bootstrap Root : mismatch in info from procs, nranks (\d+) vs (\d+)",
            CAUSE,
            r"the processes do not agree on the number of ranks (\1 and \2)",
        ),
        (
            r"[Mm]essage truncated : receiv(?:ed|ing) \S+ bytes instead of",
            CAUSE,
            "the ranks exchanged different sizes: they did not call the same operation",
        ),
        (
            r"wrong magic",
            CAUSE,
            "a process of another job connected to NCCL's port",
        ),
        (
            r"(?:Call to ibv_\w+ failed with error|Unable to register memory [^,]+, Error:)"
            r" (?:Cannot allocate memory|Unknown error -12)",
            CAUSE,
            "RDMA could pin no memory; `ulimit -l` of the job has to be unlimited",
        ),
        (
            r"Unable to register memory [^,]+, Error: ([^\"]+)",
            CAUSE,
            r"RDMA could not use a part of the memory (\1)",
        ),
        (
            r"Call to ibv_modify_qp failed with (?:error |\d+ )?([^,\"]+)",
            CAUSE,
            r"an RDMA connection could not be set up (\1)",
        ),
        (
            r"Unreachable remote|security group on either this instance",
            CAUSE,
            f"EFA never got an answer from the other node: {_RULES}",
        ),
        (
            r"Unresponsive receiver \(reachable by EFA device but handshake failed\)",
            CONSEQUENCE,
            f"EFA reached another node, and no process there answered: {_ENDED}",
        ),
        (
            r"Unresponsive receiver \(connection previously established\)|"
            r"Unresponsive remote \(was previously responsive\)",
            CONSEQUENCE,
            f"another node does not answer over EFA any more: {_ENDED}",
        ),
        (
            r"Unresponsive receiver",
            CONSEQUENCE,
            f"another node does not answer over EFA: {_ENDED}, or {_RULES}",
        ),
        (
            r"Bad queue pair \(QP\) number|Invalid receiver queue pair number|"
            r"Connection was reset by remote peer|Receiver connection aborted",
            CONSEQUENCE,
            f"EFA lost its connection to another node: {_ENDED}",
        ),
        (
            r"Connection closed by remote peer (\S+)",
            CONSEQUENCE,
            r"the process at \1 closed its connection: it ended first",
        ),
        (
            r"Call to (?:recv from|send to) (\S+) failed : ([^\"]+)",
            CONSEQUENCE,
            r"the connection to the process at \1 broke (\2)",
        ),
        (
            r"[Cc]onnect(?:ed)? to (\S+) (?:failed (?:: |with error )|returned (?:\d+\()?)"
            r"([A-Z][^,()\"]+)",
            CONSEQUENCE,
            r"the process at \1 could not be reached (\2)",
        ),
        (
            r"connect returned ([A-Z][^,\"]+), exceeded error retry count",
            CONSEQUENCE,
            r"the process of another rank could not be reached (\1)",
        ),
        (
            r"Call to (?!connect|recv|send|poll|ibv_)(\w+) failed ?: ([A-Z][^\"]+)",
            CAUSE,
            r"the system refused NCCL's call of \1 (\2)",
        ),
        (
            r"Got completion from peer (\S+) with (?:error|status=\w*\(?)\s*12\b",
            CONSEQUENCE,
            r"RDMA to the process at \1 got no answer (status 12, retries exceeded)",
        ),
        (
            r"Got completion from peer (\S+) with (?:error|status=\w*\(?)\s*(\d+)",
            CONSEQUENCE,
            r"RDMA to the process at \1 failed (status \2)",
        ),
    )
)
_WRONG_TYPE = re.compile(r"socketFinalizeAccept.*?wrong type (\d+) != (\d+)")


def read_warning(line: str) -> NcclWarning | None:
    """Return what a line with a warning of NCCL says; None if it explains no failure."""
    types = _WRONG_TYPE.search(line)
    if types:
        return NcclWarning(CAUSE, _describe_types(types[1], types[2]))
    for pattern, kind, text in _WARNINGS:
        match = pattern.search(line)
        if match:
            return NcclWarning(kind, match.expand(text))
    return None


def _describe_types(first: str, other: str) -> str:
    names = sorted(_SOCKETS.get(number, f"type {number}") for number in (first, other))
    if names == ["NET/IB", "NET/Socket"]:
        return (
            "two ranks chose different networks, NET/IB and NET/Socket;"
            " the nodes differ in their RDMA devices or in NCCL's variables"
        )
    return f"NCCL's connections were mixed up ({' and '.join(names)}): two jobs may use one port"
