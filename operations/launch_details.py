"""What a launch plan means for a person, beyond its fields: folders, its end, notifications."""

from time import time

from engine.agent.notify.notices import body
from engine.contract.plan import LaunchPlan
from engine.plan.notification_examples import examples
from engine.plan.remote_paths import work_folder
from engine.record.run_errors import unattended_end

__all__ = ["notification_bodies", "unattended_end", "work_folder"]


def notification_bodies(plan: LaunchPlan) -> tuple[str, ...]:
    """Return for each target of notifications what its first event sends."""
    notices = tuple(examples(plan, time())) if plan.notify else ()
    bodies = []
    for target in plan.notify:
        first = next(notice for notice in notices if notice.event in target.on)
        bodies.append(body(target.form, first))
    return tuple(bodies)
