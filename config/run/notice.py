"""The keys of a run file for a job that must end soon: `stop_grace` and `on_notice`."""

from typing import Annotated, Literal

from pydantic import Field

from config.cluster.cluster_file import Command
from config.duration import Duration
from config.models import Model

NOTICE_FILE = r"^(/[A-Za-z0-9._-]+)+$"
NOTICE_FORMS = {
    NOTICE_FILE: "a file's whole path of letters, digits, '.', '_' and '-', such as /shared/notice"
}


class OnNotice(Model):
    """What a node does when the job must end soon: docs/do/notices.md lists the notices."""

    signal: Literal["USR1", "USR2"] | None = Field(
        default=None, description="The signal to the ranks that have a handler for it."
    )
    file: Annotated[str, Field(pattern=NOTICE_FILE)] | None = Field(
        default=None,
        description="Where `GPUCTL_NOTICE_FILE` appears on each node; by default in the run's"
        " folder.",
    )
    command: Command | None = Field(
        default=None,
        description="A shell command on each node, which is killed at the deadline. It has the"
        " notice in `GPUCTL_NOTICE_KIND` and `GPUCTL_NOTICE_DEADLINE`.",
    )


StopGrace = Annotated[
    Duration,
    Field(
        description="How long the job may take to end after SIGTERM; then it gets SIGKILL.",
        json_schema_extra={"default": "10s"},
    ),
]
