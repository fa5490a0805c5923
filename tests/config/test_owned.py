"""Names that a run file cannot set, by its type."""

import pytest

from config.run.owned_variables import OWNED, owner
from config.run.run_file import RUN_TYPES


def test_every_type_has_a_table_without_repetition() -> None:
    assert list(OWNED) == list(RUN_TYPES)
    for rows in OWNED.values():
        names = [row.name for row in rows]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        ("task", "GPUCTL_NODES_IPS", "gpuctl sets it: the node's place in the run"),
        ("ddp", "WORLD_SIZE", "gpuctl sets it: how many NODES there are"),
        ("torchrun", "WORLD_SIZE", "torchrun sets it: how many RANKS there are"),
        ("mpi", "OMPI_COMM_WORLD_RANK", "mpirun sets it: its number, and how many there are"),
        ("mpi", "WORLD_SIZE", None),
        ("task", "RANK", None),
        ("torchrun", "ROLE_ARN", None),
        ("mpi", "OMPI_COMM_WORLD", None),
        ("deepspeed", "NCCL_DEBUG", None),
    ],
)
def test_owner(kind: str, name: str, why: str | None) -> None:
    row = owner(kind, name)
    assert (row and row.why) == why
