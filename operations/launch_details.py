"""What a launch plan means for a person, beyond its fields: folders, its end, notifications."""

from time import time

from engine.agent.node.interruption import LOOK_S
from engine.agent.notify.notices import body
from engine.contract.plan import LaunchPlan
from engine.plan.notification_examples import examples
from engine.record.run_errors import unattended_end

__all__ = ["unattended_end"]


SPOT_NOTICE_S = 120
"""Seconds between AWS's notice and the end of a spot instance ("Spot Instance interruption
notices", https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html,
2026-11-29)."""
_ON_THE_WAY_S = 2
"""Seconds in which a notice reaches all nodes, and their jobs."""


def spot_notice() -> str:
    """Return what is left for the job of AWS's notice of a spot instance's end."""
    left = SPOT_NOTICE_S - LOOK_S - _ON_THE_WAY_S
    return (
        f"notice of a spot instance's end: AWS gives {SPOT_NOTICE_S} s and gpuctl asks every"
        f" {LOOK_S:g} s, so the job has {left:g} s or more"
    )


def notification_bodies(plan: LaunchPlan) -> tuple[str, ...]:
    """Return for each target of notifications what its first event sends."""
    notices = tuple(examples(plan, time())) if plan.notify else ()
    bodies = []
    for target in plan.notify:
        first = next(notice for notice in notices if notice.event in target.on)
        bodies.append(body(target.form, first))
    return tuple(bodies)
