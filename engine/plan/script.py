"""Bash scripts of a run: the run file's commands, and the lines that gpuctl adds to them."""

import shlex
from collections.abc import Sequence

from engine.agent.node.bash_entries import ENTRIES
from engine.plan.remote_paths import error_path, failed_path, ranks_path, run_folder

# `$?` is read first, because every other command would change it. The script sets neither `-e` nor
# `pipefail`: an entry may use a failing command as a condition, and `yes | head` is correct
# (docs/develop/judging.md). If a part of a pipe fails and the pipe does not, the script prints a
# warning. It ignores status 141 (SIGPIPE): the reader of that part ended first.
#
# The entries share the shell with this function, which therefore has no variables, and calls
# nothing that an entry may have replaced.
_NEXT = r"""gpuctl_next() {
  if [[ $1 -ne 0 ]]; then builtin exit "$1"; fi
  [[ $3 -gt 1 && ${!#} = 0 ]] || builtin return 0
  while [[ $# -gt 3 ]]; do
    case "$4" in
      0 | 141) ;;
      *)
        builtin printf 'gpuctl: in a pipe of entry %s of the commands, part %s of %s' \
          "$2" "$(($3 - $# + 4))" "$3" >&2
        builtin printf ' ended with %s, and the pipe with 0; %s\n' \
          "$4" '`set -o pipefail` before it makes that a failure' >&2
        ;;
    esac
    builtin set -- "$1" "$2" "$3" "${@:5}"
  done
}
builtin readonly -f gpuctl_next
"""

WAIT = "exec sleep infinity\n"
"""The script of a node on which a launcher starts the ranks."""


def job_script(commands: Sequence[str], before: str = "") -> str:
    """Return a script that runs the entries in order in one bash, up to the first that fails.

    The job ends with the status of that entry. Variables, functions and the working directory
    carry over from entry to entry. `before` are gpuctl's lines that run first.

    The first line has the first and last line of each entry: with them each node checks the
    entries before anything runs (engine/agent/node/bash_entries.py).
    """
    script, places = f"{before}{_NEXT}", []
    for entry, command in enumerate(commands, 1):
        first = script.count("\n") + 2
        # The empty line is needed after an entry that ends with a backslash.
        script += f"{command.rstrip()}\n\n"
        places.append(f"{first}-{script.count(chr(10))}")
        script += f'gpuctl_next $? {entry} "${{#PIPESTATUS[@]}}" "${{PIPESTATUS[@]}}"\n'
    return f"{ENTRIES}{' '.join(places)}\n{script}"


def report_rank(run_id: str, rank: str, size: str) -> str:
    """Return the script line with which a rank reports its number and the world size.

    `rank` and `size` are bash words. With these reports gpuctl notices a launcher that ignores
    its hostfile.
    """
    # Opening a FIFO for reading and writing (1<>) does not wait for a reader.
    return f'printf "%s %s\\n" "{rank}" "{size}" 1<>{shlex.quote(ranks_path(run_id))}\n'


def report_failure(run_id: str, first: str = "") -> str:
    """Return the script line with which a rank that fails ends its node's job with its status.

    `first` is a command that runs before, if the rank failed.
    """
    path = shlex.quote(failed_path(run_id))
    failed = f'echo "$gpuctl_status" 1<>{path}'
    failed = f"{{ {first}; {failed}; }}" if first else failed
    report = f'gpuctl_status=$?; [ "$gpuctl_status" = 0 ] || {failed}'
    return f"trap {shlex.quote(report)} EXIT\n"


def run_rank(run_id: str, before: str, commands: Sequence[str]) -> dict[str, str]:
    """Return the files of a rank that a launcher starts as `rank.sh`: `before`, and the commands.

    After `before` the commands run in another bash: they may set a trap for EXIT, and
    end with `exec`.
    """
    if not before:
        return {"rank.sh": job_script(commands)}
    script = f"{before}bash {shlex.quote(f'{run_folder(run_id)}/commands.sh')}\n"
    return {"rank.sh": script, "commands.sh": job_script(commands)}


def keep_error(run_id: str) -> str:
    """Return the command with which a rank of torchrun keeps its error file as its node's.

    torchrun gives every rank a file (`TORCHELASTIC_ERROR_FILE`) and copies that of the first
    failure, but it may be stopped before. A file that exists is the first, and stays.
    """
    return f'cp -n "$TORCHELASTIC_ERROR_FILE" {shlex.quote(error_path(run_id))} 2>/dev/null'


def run_until_failure(run_id: str, launcher: str = "") -> str:
    """Return a script that ends when the launcher ends or a rank of this node fails.

    Launchers can be late to notice that a rank has failed while others wait for it: torchrun of
    PyTorch 1.13 takes 5 minutes; horovodrun and DeepSpeed never do if the others do not end.
    Without a launcher the script waits for ranks that another node starts here.
    """
    path = shlex.quote(failed_path(run_id))
    begin = f"mkfifo -m 600 {path} && exec 9<>{path} || exit\n"
    run = f'{{ ( {launcher.rstrip()} ) 9>&-; echo "$?" >&9; }} &\n' if launcher else ""
    return f'{begin}{run}read -r gpuctl_status <&9\nexit "$gpuctl_status"\n'


def quote_words(*words: str) -> str:
    """Return the words as one line of bash, quoted."""
    return shlex.join(words)


def require_program(program: str, product: str) -> str:
    """Return script lines that end the job with 127 and a message if a program is missing."""
    text = f"install {product} in the image or on the nodes"
    return (
        f"if ! command -v {program} >/dev/null; then\n"
        f'  echo "gpuctl: $GPUCTL_NODE_NAME has no {program}; {text}" >&2\n'
        "  exit 127\n"
        "fi\n"
    )


def unset_variables(names: Sequence[str]) -> str:
    """Return a script line that unsets the variables; an empty text if there are none."""
    return f"unset {' '.join(names)}\n" if names else ""
