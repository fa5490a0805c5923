"""The tags with which launchers name the rank of a line, if the job asks them to.

Open MPI's --tag-output (`[1,5]<stdout>:`), PRRTE's with its namespace, and horovodrun's
(`[5]<stdout>:`); docs/look-up/nccl-tables.md has the sources. Other tags name no rank of the job,
such as torchrun's `[default0]:`, or look like a job's own text, such as `5: ` of srun.
"""

import re

_TAG = re.compile(r"\[(?:[\w.@-]*,)?(\d{1,6})\](?:\[[^\]\s]*\])?<std(?:out|err)>:? ?")
MARK = "<std"
"""A part of every tag: a text without it has none."""


def split_tag(text: str) -> tuple[int | None, str]:
    """Return the rank with which a launcher tagged the line, None without one, and the rest."""
    tag = _TAG.match(text) if MARK in text else None
    return (int(tag[1]), text[tag.end() :]) if tag else (None, text)
