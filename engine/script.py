"""A run file's commands as one bash script."""

import shlex
from collections.abc import Sequence

from engine.places import failed_path, ranks_path

# The status that the entry ended with is read before anything else can change it. Neither `set -e`
# nor `pipefail` is used: an entry may have control flow of its own, in which a failing command is
# an answer, and `yes | head` is fine (docs/decisions/209). So a part of a pipe that failed while
# the pipe did not is reported, but for 141: its reader had enough.
_HEAD = r"""gpuctl_next() {
  local status=$1 entry=$2 part=0 of
  shift 2
  if [ "$status" -ne 0 ]; then exit "$status"; fi
  [ $# -gt 1 ] && [ "${!#}" = 0 ] || return 0
  for of in "$@"; do
    part=$((part + 1))
    case "$of" in 0 | 141) continue ;; esac
    printf 'gpuctl: in a pipe of entry %s of the commands, part %s of %s ended with %s, %s\n' \
      "$entry" "$part" "$#" "$of" \
      'and the pipe with 0; `set -o pipefail` before it makes that a failure' >&2
  done
}
"""

WAIT = "exec sleep infinity\n"
"""The script of a node on which a launcher starts the ranks."""


def job_script(commands: Sequence[str]) -> str:
    """Entries run in order in one bash; the first that ends with a failure ends the job with it.

    Variables, functions and the folder carry over from entry to entry.
    """
    # The empty line ends an entry whose last line ends in a backslash.
    return _HEAD + "".join(
        f'{command.rstrip()}\n\ngpuctl_next $? {entry} "${{PIPESTATUS[@]}}"\n'
        for entry, command in enumerate(commands, 1)
    )


def tell_rank(run_id: str, rank: str, size: str) -> str:
    """A line of a rank's script: the run learns that it started, and of how many it is one.

    `rank` and `size` are bash words. A launcher that ignored its hostfile is found out by it.
    """
    # Opened for reading too, a FIFO does not wait for a reader.
    return f'printf "%s %s\\n" "{rank}" "{size}" 1<>{shlex.quote(ranks_path(run_id))}\n'


def tell_failure(run_id: str) -> str:
    """A line of a rank's script: where the rank fails its node's job ends, with its status."""
    path = shlex.quote(failed_path(run_id))
    tell = f'gpuctl_status=$?; [ "$gpuctl_status" = 0 ] || echo "$gpuctl_status" 1<>{path}'
    return f"trap {shlex.quote(tell)} EXIT\n"


def until_failure(run_id: str, launcher: str = "") -> str:
    """A script that ends with the launcher, or with the first of the node's ranks that fails.

    Launchers notice late that a rank has failed while the others wait for it: horovodrun and
    DeepSpeed's never where these do not end, torchrun of PyTorch 1.13 after 5 minutes. Without a
    launcher the script waits for ranks that are started from another node.
    """
    path = shlex.quote(failed_path(run_id))
    begin = f"mkfifo -m 600 {path} && exec 9<>{path} || exit\n"
    run = f'{{ ( {launcher.rstrip()} ) 9>&-; echo "$?" >&9; }} &\n' if launcher else ""
    return f'{begin}{run}read -r gpuctl_status <&9\nexit "$gpuctl_status"\n'


def call(*words: str) -> str:
    """Words as bash reads them, each as it is."""
    return shlex.join(words)


def require(program: str, product: str) -> str:
    """Lines that end the job with bash's own status where a program is missing, saying so."""
    text = f"the image or the nodes' setup has to bring {product}"
    return (
        f"if ! command -v {program} >/dev/null; then\n"
        f'  echo "gpuctl: $GPUCTL_NODE_NAME has no {program}; {text}" >&2\n'
        "  exit 127\n"
        "fi\n"
    )


def without(names: Sequence[str]) -> str:
    """A line after which programs are started without these variables; nothing for none."""
    return f"unset {' '.join(names)}\n" if names else ""
