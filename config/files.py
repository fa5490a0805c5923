"""Files that gpuctl must be able to read again, whatever happens while it writes them."""

import os
from contextlib import suppress
from pathlib import Path

from config.errors import StateError


def write_whole(path: Path, text: str) -> None:
    """Write the file whole or not at all, on the disk and not only on its way, for its owner alone.

    Its folder is made where it is missing. Raises StateError where the disk is full or read-only;
    what the file held before is there then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):  # a file without a name of ours is nobody's loss
            temporary.unlink()
        raise StateError(
            f"{path} cannot be written: {error.strerror or error}",
            "make room on that disk; `gpuctl status` tells what exists and bills",
        ) from error
