"""The keys of a run file that name files: those that a job needs, and its outputs.

The form of `files` is dstack's (src/dstack/_internal/core/models/files.py of dstackai/dstack,
2026-11-23), with remote paths in the working folder alone.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from config.duration import Size
from config.models import Model

REPO_URL = (
    r"^(https://[^/@:\s]+(:[0-9]+)?/\S+|ssh://([^/:@\s]+@)?[^-/@\s]\S*|[^-/:@\s]+@[^-/:@\s]+:\S+)$"
)
BRANCH = r"^[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}$"
COMMIT = r"^[0-9a-f]{40}$"
CODE_FORMS = {
    REPO_URL: "https://HOST/PATH, ssh://HOST/PATH or USER@HOST:PATH, without a password",
    BRANCH: "the name of a branch or a tag",
    COMMIT: "all 40 digits of a commit",
}


class Repo(Model):
    """A git repository whose files the job needs."""

    url: str = Field(
        pattern=REPO_URL,
        description="`https://…`, `ssh://…` or `USER@HOST:PATH`; git on this machine fetches it.",
    )
    branch: str | None = Field(
        default=None, pattern=BRANCH, description="A branch or a tag; by default the server's."
    )
    commit: str | None = Field(
        default=None, pattern=COMMIT, description="A commit, in place of the newest."
    )


Workdir = Annotated[
    str | None,
    Field(
        min_length=1,
        description="A folder of yours, relative to this file; the job's working folder begins with"
        " its content.",
    ),
]
RepoSource = Annotated[Repo | None, Field(description="A git repository instead of `workdir`.")]
Files = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(
        max_length=1000,
        description="More files and folders of yours, `LOCAL:REMOTE`, or one path for both;"
        " `REMOTE` is in the working folder.",
    ),
]
CodeLimit = Annotated[
    Size, Field(description="How large `workdir`, `repo` and `files` may be together.")
]
Outputs = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(
        max_length=1000,
        description="Files and folders of the working folder that come back when the run is over:"
        " paths, or patterns with `*`.",
    ),
]


@dataclass(frozen=True)
class Mapping:
    """An entry of `files`: a path of the user's, and its place in the working folder."""

    local: str
    remote: str


def parse_mapping(entry: str) -> Mapping:
    """Return the two paths of an entry; both are the same if it has one."""
    local, _, remote = entry.partition(":")
    return Mapping(local, remote or local)
