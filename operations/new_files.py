"""Files that gpuctl writes for a person, who may have some of that name."""

from collections.abc import Mapping
from pathlib import Path

from config.errors import InputError

__all__ = ["write_new_files"]


def write_new_files(texts: Mapping[Path, str], reason: str, hint: str) -> None:
    """Write each text into its file. InputError, and nothing is written, if one of them exists.

    `reason` says why the command overwrites nothing, `hint` what to do then.
    """
    for path in texts:
        if path.exists() or path.is_symlink():
            raise InputError(f"{path} exists, and {reason}", hint)
    for path, text in texts.items():
        try:
            with path.open("x", encoding="utf-8") as new:
                new.write(text)
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror}"
            raise InputError(message, "name a file in a folder of yours") from error
