"""The user's scripts that a run's commands name: `bash train.sh`, `./train.sh`, `source env.sh`.

A word that is the path of a file of the run's code counts, whatever program it is given to, since
`mpirun … ./train.sh` starts it too. Scripts are searched for further ones.
"""

import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from config.files import LARGEST_FILE, read_regular
from config.run.run_file import Run
from engine.plan.network.user_settings import commands_of
from engine.plan.source_tree import Entry, Tree

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
