"""Hostfiles in the dialects of those that read them."""

from collections.abc import Mapping


def hostfile(slots: Mapping[str, int]) -> str:
    """A line `IP slots=N` per node, for Open MPI, DeepSpeed and Horovod; bare `IP` for 0.

    As dstack writes it: `slots=0` made mpirun fail there (dstackai/dstack#3434, 2026-11-20).
    """
    return "".join(f"{ip} slots={count}\n" if count else f"{ip}\n" for ip, count in slots.items())


def hydra_hostfile(slots: Mapping[str, int]) -> str:
    """A line `IP:N` per node, for MPICH and Intel MPI; Open MPI refuses it.

    mpi-operator writes the same (pkg/controller/mpi_job_controller.go, 2026-07-02).
    """
    return "".join(f"{ip}:{count}\n" for ip, count in slots.items())


def host_list(slots: Mapping[str, int]) -> str:
    """`IP:N,IP:N`: horovodrun's `-H`, and TI-ONE's lists of nodes."""
    return ",".join(f"{ip}:{count}" for ip, count in slots.items())
