"""A run file's commands as one bash script."""

from collections.abc import Sequence

# The status that the entry ended with is read before anything else can change it. `set -e` is not
# used: an entry may have control flow of its own, in which a failing command is an answer.
_HEAD = 'gpuctl_next() { local status=$?; if [ "$status" -ne 0 ]; then exit "$status"; fi; }\n'


def job_script(commands: Sequence[str]) -> str:
    """Entries run in order in one bash; the first that ends with a failure ends the job with it.

    Variables, functions and the folder carry over from entry to entry.
    """
    # The empty line ends an entry whose last line ends in a backslash.
    return _HEAD + "".join(f"{command.rstrip()}\n\ngpuctl_next\n" for command in commands)
