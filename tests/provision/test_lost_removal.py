"""A removal that AWS refuses is never passed over in silence: instances would run on."""

from typing import Any

import pytest

from config.errors import CloudError, InfraError, Interrupted
from config.progress import Reporter, silent
from config.target import Target
from infra.stack.changes import Plan
from provision.nodes.launch import FleetLaunch
from tests.infra.region import resolved

EXPIRED = CloudError("AWS refused DescribeVpcs: RequestExpired", "renew them", "RequestExpired")
LEFT = (
    "what was created could not be removed (AWS refused DescribeVpcs: RequestExpired):"
    " remove it with `gpuctl down demo`"
)


class Expires:
    """A stack whose launch ends with an error, and whose credentials end before the removal."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def exists(self) -> bool:
        return False

    def up(self, *_: Any) -> None:
        raise self._error

    def destroy(self, report: Reporter) -> None:
        raise EXPIRED


def launch(target: Target, error: BaseException) -> None:
    wanted = resolved(target, instance_type="g5.12xlarge", nodes=1, capacity={"type": "spot"})
    wanted = wanted.model_copy(update={"zones": ("us-east-1a",)})
    stack: Any = Expires(error)
    FleetLaunch(wanted, Plan(()), stack, target, lambda _: None).carry_out(silent)


def test_after_ctrl_c(target: Target) -> None:
    with pytest.raises(Interrupted) as caught:
        launch(target, KeyboardInterrupt())
    assert (caught.value.message, caught.value.hint) == (f"interrupted, and {LEFT}", "renew them")


def test_after_a_failure(target: Target) -> None:
    with pytest.raises(CloudError) as caught:
        launch(target, InfraError("node0 failed", "", "InternalError", "node0"))
    assert (caught.value.message, caught.value.code) == (EXPIRED.message, EXPIRED.code)
    assert caught.value.hint == f"renew them; {LEFT}"
