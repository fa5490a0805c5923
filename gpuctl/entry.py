"""The command's entry point. It checks that gpuctl's packages are not hidden, then runs `cli`.

The rooms are top-level packages with plain names (`config`, `nodes`, …), see
docs/develop/tooling.md. Another package of such a name, or a folder on
PYTHONPATH, would be imported in their place and fail far from its cause.
"""

import gc
import os
import sys

ROOMS = (
    "cli",
    "config",
    "engine",
    "formats",
    "infra",
    "lab",
    "nodes",
    "operations",
    "provision",
    "stacks",
)


def find_hidden_room() -> str | None:
    """Return a line about the first room that is not next to this package, or None."""
    from importlib.util import find_spec
    from pathlib import Path

    home = Path(__file__).resolve().parent.parent
    for room in ROOMS:
        spec = find_spec(room)
        folder = Path(spec.origin).resolve().parent if spec and spec.origin else None
        if folder != home / room:
            return (
                f"its package '{room}' is hidden by {folder or 'nothing at all'}; "
                "unset PYTHONPATH, and install gpuctl on its own (uv tool install, pipx)"
            )
    return None


def _open_closed_streams() -> None:
    """Open /dev/null as stdin, stdout and stderr where the caller has closed them (`>&-`).

    Whoever closes a stream wants nothing from it. A file that gpuctl opens later would otherwise
    get the stream's number, and with it what gpuctl and its children print.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _prepare_imports() -> None:
    """Let Python keep compiled modules even where the environment forbids it, as containers do.

    Compiling takes half a second of every command. The compiled modules are in gpuctl's cache, not
    next to the sources. The path repeats `cache_home` of config/folders.py, because that module
    would be imported too early. gpuctl uses no pydantic plugins; without the setting pydantic
    searches the metadata of every package for them.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if sys.dont_write_bytecode and not sys.flags.ignore_environment:
        cache = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(cache):  # noqa: PTH117
            cache = os.path.expanduser("~/.cache")  # noqa: PTH111
        sys.pycache_prefix = f"{cache}/gpuctl/pycache"
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # for processes that gpuctl starts
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix


def main() -> None:
    """Run the command; the process ends with its exit code."""
    _open_closed_streams()
    _prepare_imports()
    # A command's objects are mostly modules, which stay. By default Python searches them for
    # garbage after every 700 new ones, which takes a tenth of the imports' time.
    gc.set_threshold(20_000)
    if complaint := find_hidden_room():
        sys.stderr.write(f"gpuctl: error: {complaint}\n")
        raise SystemExit(2)
    from cli.lazy_modules import import_lazily

    import_lazily()
    from cli.main import main as run
    from cli.terminal import name_streams

    name_streams()
    run()
