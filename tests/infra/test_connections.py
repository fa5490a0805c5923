"""The connections of a program to Pulumi's engine end with it: a later engine may get its port."""

import gc

import grpc
import pytest

from infra.stack.inline_program import load_program
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from tests.infra.region import Region, resolved


@pytest.mark.engine
def test_connections_of_earlier_programs_are_closed(here: Region, engine: Engine) -> None:
    stack = Stack("demo", here.target, engine)
    load_program()
    frozen = gc.get_freeze_count()
    open_after = []
    for _ in range(3):
        stack.preview(resolved(here.target))
        open_after.append(sum(isinstance(held, grpc.Channel) for held in gc.get_objects()))
    assert open_after[0] == open_after[1] == open_after[2]  # those of the last program alone
    assert (
        gc.get_freeze_count() <= frozen
    )  # each program added thousands; what is frozen may still end
