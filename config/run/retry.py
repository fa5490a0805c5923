"""The keys of a run file for time limits and for another attempt after a failure."""

from typing import Annotated, Literal

from pydantic import Field

from config.duration import Duration
from config.models import Model

Cause = Literal["node-lost", "exit-code", "preemption", "no-output", "network", "startup"]
CAUSES: tuple[Cause, ...] = (
    "node-lost",
    "exit-code",
    "preemption",
    "no-output",
    "network",
    "startup",
)
MOST_ATTEMPTS = 1000


class Retry(Model):
    """When a run that failed starts again, on all its nodes."""

    attempts: int = Field(
        default=3,
        ge=2,
        le=MOST_ATTEMPTS,
        description="How often the job is started at most, the first time included.",
    )
    on: tuple[Cause, ...] = Field(
        default=CAUSES,
        min_length=1,
        description="The failures after which it starts again; by default all of these.",
    )
    backoff: Duration = Field(
        default=5,
        description="The pause before the second attempt; it doubles with each, up to 5 minutes.",
        json_schema_extra={"default": "5s"},
    )
    node_wait: Duration = Field(
        default=3600,
        description="How long the run waits for lost nodes to come back before it fails.",
        json_schema_extra={"default": "1h"},
    )


RunRetry = Annotated[
    Retry | None,
    Field(description="When a run that failed starts again; by default never."),
]
MaxDuration = Annotated[
    Duration | None, Field(description="The run fails after this long, all attempts together.")
]
StartupTimeout = Annotated[
    Duration | None,
    Field(description="The run fails if not all nodes and ranks have started after this long."),
]


class Hang(Model):
    """What happens to a job that has printed nothing for some time."""

    after: Duration = Field(
        default=300,
        description="How long no node prints a line before the ranks are examined.",
        json_schema_extra={"default": "5m"},
    )
    action: Literal["report", "stop", "restart"] = Field(
        default="report",
        description="`report`: the run goes on; `stop`: it fails; `restart`: it starts again, by"
        " `retry`.",
    )


RunHang = Annotated[
    Hang | None,
    Field(
        description="Finds the rank that a silent job waits for: stacks of all ranks are compared."
    ),
]
NoOutputTimeout = Annotated[
    Duration | None,
    Field(description="The run fails if no node prints a line for this long."),
]
