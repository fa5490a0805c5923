"""The tags that name the rank of a line: of launchers, if the job asks them to, and of PyTorch.

Open MPI's --tag-output (`[1,5]<stdout>:`), PRRTE's with its namespace, and horovodrun's
(`[5]<stdout>:`); docs/look-up/nccl-tables.md has the sources. PyTorch prints `[rank5]:` before
exceptions and errors of NCCL, and torchrun's --tee before each line (engine/plan/modes/torchrun.py
asks for that). Other tags name no rank of the job, such as torchrun's
`[default0]:` with the number on its node, or look like a job's own text, such as `5: ` of srun.
"""

import re

_TAG = re.compile(
    r"\[(?:[\w.@-]*,)?(\d{1,6})\](?:\[[^\]\s]*\])?<std(?:out|err)>:? ?"
    r"|\[rank(\d{1,6})\]: ?"
)
_MARKS = ("<std", "[rank")
"""Each tag has one of them: a text without them has no tag."""


def may_have_tag(text: str) -> bool:
    """Return whether a line of the text may have a tag; it is faster than a look for the tag."""
    return any(mark in text for mark in _MARKS)


def split_tag(text: str) -> tuple[int | None, str]:
    """Return the rank with which the line is tagged, None without one, and the rest.

    Tags of the same rank are one: a launcher's before PyTorch's own.
    """
    rank = None
    while may_have_tag(text) and (tag := _TAG.match(text)):
        number = int(tag[1] or tag[2])
        if rank not in (None, number):
            break
        rank, text = number, text[tag.end() :]
    return rank, text
