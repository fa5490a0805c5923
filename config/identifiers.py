"""The names that come from others: from a bucket, a head, a node, a file.

Each is a type with one pattern. A value that was parsed into such a type is safe as a part of a
path, a key, a shell's word or a line of ssh_config: it has no separator, no space and no line end,
and it does not begin with `-` or `.`. Build none of these from a plain `str` of somebody else's.
"""

import re
from typing import Annotated

from config.bounds import Pattern

CLUSTER_NAME = r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$"
RUN_NAME = r"^[a-z][a-z0-9-]{0,40}$"
RUN_ID = r"^[a-z][a-z0-9-]{0,40}-[0-9a-f]{6}$"
NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9-]{0,62}$"
BUCKET_KEY = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}){0,7}$"
SSH_HOST = r"^[A-Za-z0-9:][A-Za-z0-9.:-]{0,252}$"
SSH_JUMP = r"^[A-Za-z0-9_\[][A-Za-z0-9_.@:%/,\[\]-]{0,511}$"
SSH_USER = r"^[a-z_][a-z0-9_-]{0,31}$"
INSTANCE_ID = r"^[A-Za-z0-9][A-Za-z0-9-]{0,62}$"

ClusterName = Annotated[str, Pattern(CLUSTER_NAME)]
"""Lower-case letters, digits and hyphens, at most 30: it becomes part of AWS names and folders."""

RunName = Annotated[str, Pattern(RUN_NAME)]
"""The name that a run file gives its run."""

RunId = Annotated[str, Pattern(RUN_ID)]
"""A run's name, a hyphen and six hexadecimal digits (`engine.plan.launch_plan.new_run_id`)."""

NodeName = Annotated[str, Pattern(NODE_NAME)]
"""A host name without dots, as `node0`."""

BucketKey = Annotated[str, Pattern(BUCKET_KEY)]
"""An object's key below a folder of gpuctl's in a bucket; it becomes a path of this machine."""

SshHost = Annotated[str, Pattern(SSH_HOST)]
"""An IPv4 or IPv6 address, or a host's name."""

SshJump = Annotated[str, Pattern(SSH_JUMP)]
"""The machines to go through, as in `ssh -J`: `USER@HOST:PORT` or an `ssh://` URI, with commas."""

SshUser = Annotated[str, Pattern(SSH_USER)]
"""A user's name on a node, as useradd allows it."""

InstanceId = Annotated[str, Pattern(INSTANCE_ID)]
"""The id of an instance of EC2 (`i-0123456789abcdef0`), or of a machine that is none."""


def is_valid(text: object, pattern: str) -> bool:
    """Return whether the value is a text that matches one of the patterns of this module."""
    return isinstance(text, str) and re.fullmatch(pattern, text, re.ASCII) is not None
