"""Hostfiles in the formats of the launchers that read them."""

from collections.abc import Mapping


def hostfile(slots: Mapping[str, int]) -> str:
    """Return a line `IP slots=N` per node, for Open MPI, DeepSpeed and Horovod; only `IP` for 0.

    Dstack does the same, because `slots=0` makes mpirun fail (dstackai/dstack#3434, 2026-11-20).
    """
    return "".join(f"{ip} slots={count}\n" if count else f"{ip}\n" for ip, count in slots.items())


def hydra_hostfile(slots: Mapping[str, int]) -> str:
    """Return a line `IP:N` per node, for MPICH and Intel MPI; Open MPI rejects it.

    mpi-operator writes the same (pkg/controller/mpi_job_controller.go, 2026-07-02).
    """
    return "".join(f"{ip}:{count}\n" for ip, count in slots.items())


def host_list(slots: Mapping[str, int]) -> str:
    """Return `IP:N,IP:N`, for horovodrun's `-H` and for TI-ONE's lists of nodes."""
    return ",".join(f"{ip}:{count}" for ip, count in slots.items())
