"""Bash scripts of a run: the run file's commands, and the lines that gpuctl adds to them.

Commands name scripts of the user: `bash train.sh`, `./train.sh`, `source env.sh`. A word that is
the path of a file of the run's code counts, whatever program it is given to, since `mpirun …
./train.sh` starts it too. Scripts are searched for further ones.
"""

import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from config.files import LARGEST_FILE, read_regular
from config.run.run_file import Run
from engine.agent.node.bash_entries import ENTRIES
from engine.plan.network.settings import commands_of
from engine.plan.remote_paths import RunPaths
from engine.plan.source_tree import Entry, Tree

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


def report_rank(paths: RunPaths, rank: str, size: str) -> str:
    """Return the script line with which a rank reports its number and the world size.

    `rank` and `size` are bash words. With these reports gpuctl notices a launcher that ignores
    its hostfile.
    """
    # Opening a FIFO for reading and writing (1<>) does not wait for a reader.
    return f'printf "%s %s\\n" "{rank}" "{size}" 1<>{shlex.quote(paths.ranks)}\n'


def report_failure(paths: RunPaths, first: str = "") -> str:
    """Return the script line with which a rank that fails ends its node's job with its status.

    `first` is a command that runs before, if the rank failed.
    """
    path = shlex.quote(paths.failed)
    failed = f'echo "$gpuctl_status" 1<>{path}'
    failed = f"{{ {first}; {failed}; }}" if first else failed
    report = f'gpuctl_status=$?; [ "$gpuctl_status" = 0 ] || {failed}'
    return f"trap {shlex.quote(report)} EXIT\n"


def run_rank(paths: RunPaths, before: str, commands: Sequence[str]) -> dict[str, str]:
    """Return the files of a rank that a launcher starts as `rank.sh`: `before`, and the commands.

    After `before` the commands run in another bash: they may set a trap for EXIT, and
    end with `exec`.
    """
    if not before:
        return {"rank.sh": job_script(commands)}
    script = f"{before}bash {shlex.quote(f'{paths.folder}/commands.sh')}\n"
    return {"rank.sh": script, "commands.sh": job_script(commands)}


def keep_error(paths: RunPaths) -> str:
    """Return the command with which a rank of torchrun keeps its error file as its node's.

    torchrun gives every rank a file (`TORCHELASTIC_ERROR_FILE`) and copies that of the first
    failure, but it may be stopped before. A file that exists is the first, and stays.
    """
    return f'cp -n "$TORCHELASTIC_ERROR_FILE" {shlex.quote(paths.error)} 2>/dev/null'


def run_until_failure(paths: RunPaths, launcher: str = "") -> str:
    """Return a script that ends when the launcher ends or a rank of this node fails.

    Launchers can be late to notice that a rank has failed while others wait for it: torchrun of
    PyTorch 1.13 takes 5 minutes; horovodrun and DeepSpeed never do if the others do not end.
    Without a launcher the script waits for ranks that another node starts here.
    """
    path = shlex.quote(paths.failed)
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


# `$(dirname "$0")/env.sh`, `${HERE}/env.sh`: a folder that only the shell knows.
_SHELLS_FOLDER = re.compile(r'"?\$(?:\{\w+\}|\w+|\([^()\n]*\))"?/')
_WORD = re.compile(r"[\w.+@/-]+")
_FOLDER = re.compile(r"""\b(?:cd|pushd)\s+(?:--\s+)?["']?([\w.+@/-]+)""")
_MOST_FOLDERS = 20


def with_scripts(tree: Tree, run: Run) -> Tree:
    """Return the tree with the scripts that the run's commands name, and those that these name.

    They have 16 MiB together at most; others are not read.
    """
    files = {entry[0]: entry for entry in tree.files}
    names = {posixpath.basename(path) for path in files}
    texts: dict[str, str] = {}
    paths = [path for text in commands_of(run) for path in _paths(text, "", names)]
    room = LARGEST_FILE
    while paths:
        path = paths.pop()
        entry = files.pop(path, None)
        if entry is None or entry[4] > room:
            continue
        text = _text(tree, entry)
        if text is not None:
            room -= len(text)
            texts[path] = text
            paths += _paths(text, posixpath.dirname(path), names)
    return replace(tree, scripts=dict(sorted(texts.items())))


def _paths(text: str, folder: str, names: Collection[str]) -> Iterator[str]:
    """Yield paths that the text may name, with these names; `folder` is that of the script."""
    text = _SHELLS_FOLDER.sub("./", text)
    folders = ["", folder, *dict.fromkeys(_FOLDER.findall(text))][:_MOST_FOLDERS]
    for word in dict.fromkeys(_WORD.findall(text)):
        if posixpath.basename(word) in names:
            for start in folders:
                yield posixpath.normpath(posixpath.join(start, word))


def _text(tree: Tree, entry: Entry) -> str | None:
    """Return the text of a file; None if it is none, or cannot be read any more."""
    try:
        content = read_regular(tree.local[entry[3]])
    except OSError:  # it has changed since it was hashed: sending it reports that
        return None
    return None if b"\0" in content else content.decode("utf-8", "replace")
