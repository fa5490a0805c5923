"""Rules about the user's files that a run names: they exist, and are not too large.

They check the disk, so that a wrong path is reported before anything costs.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from config.cluster.cluster_rules import Data
from config.duration import SIZE, byte_count
from config.files import NotRegular
from config.mistakes import Mistake
from config.run.code import Mapping, parse_mapping
from config.run.run_file import Run
from config.run.sources import Source, file_source, folder_sources, leads_out

_RELATIVE = "correct the path: it is relative to the run file"
_SHOWN = 3
MOST_FILES = 200_000
"""More files are a mistake, such as the folder of the whole system; to list them takes too long."""


def code_mistakes(data: Data, folder: Path, most: int = MOST_FILES) -> Iterator[Mistake]:
    """Yield the mistakes in a run's files, of which there may be `most`.

    `folder` is that of the run file.
    """
    if data.get("workdir") is not None and data.get("repo") is not None:
        message = "'workdir' and 'repo' both say what the working folder begins with"
        yield Mistake("E223", message, "remove one of them", ("repo",), on_key=True)
    sources: list[Source] = []
    workdir = data.get("workdir")
    if isinstance(workdir, str):
        path = local_path(workdir, folder)
        yield from _collect(sources, ("workdir",), workdir, _folder_at(path), most)
    for index, entry in enumerate(_texts(data.get("files"))):
        if isinstance(entry, str):
            at = ("files", index)
            wrong = _mapping_mistake(entry)
            if wrong:
                yield Mistake("E241", f"'files[{index}]' is '{entry}', {wrong[0]}", wrong[1], at)
            else:
                mapping = parse_mapping(entry)
                yield from _collect(sources, at, mapping.local, _mapped(mapping, folder), most)
    yield from _outputs(data)
    yield from _size(data, sources)
    yield from _links(sources, ("workdir",) if isinstance(workdir, str) else ("files",))


def run_sources(run: Run, folder: Path, checkout: Path | None = None) -> tuple[Source, ...]:
    """Return all that travels for a run, each path once; `files` override `workdir`.

    `checkout` is the folder with the files of `repo`. Raises OSError for what cannot be read.
    """
    sources: list[Source] = []
    first = checkout or (local_path(run.workdir, folder) if run.workdir else None)
    if first is not None:
        sources += folder_sources(first)
    for entry in run.files:
        sources += _mapped(parse_mapping(entry), folder)
    places: dict[str, Source] = {}
    for source in sources:
        for parent in reversed(PurePosixPath(source.path).parents[:-1]):
            places.setdefault(str(parent), Source(str(parent), folder, "folder", 0o755))
        if source.kind != "folder" or source.path not in places:
            places[source.path] = source
    return tuple(places[path] for path in sorted(places, key=lambda path: path.split("/")))


def outside_paths(run: Run, folder: Path) -> tuple[Path, ...]:
    """Return the paths of the run that need the user's consent.

    These are paths outside the run file's folder, and folders that contain the user's home.
    """
    home, inside = Path.home().resolve(), folder.resolve()
    written = [run.workdir] if run.workdir else []
    written += [parse_mapping(entry).local for entry in run.files]
    paths = (local_path(text, folder).resolve() for text in written)
    return tuple(
        dict.fromkeys(
            path for path in paths if not path.is_relative_to(inside) or home.is_relative_to(path)
        )
    )


def size_mistake(sources: Iterable[Source], limit: str) -> tuple[str, str] | None:
    """Return message and hint for files that are larger than the limit together, or None."""
    files = [source for source in sources if source.kind == "file"]
    total = sum(source.size for source in files)
    if total <= byte_count(limit):
        return None
    largest = max(files, key=lambda source: source.size)
    return (
        f"the code has {mebibytes(total)}, above 'code_limit' {limit}, the largest file is"
        f" {largest.path} ({mebibytes(largest.size)})",
        "name what is not needed in .gpuctlignore, or raise 'code_limit'",
    )


def mebibytes(size: int) -> str:
    """Return the size in MiB as people read it."""
    return f"{size / (1 << 20):.1f} MiB"


def local_path(text: str, folder: Path) -> Path:
    """Return the path of the user's that a run file in `folder` names."""
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:  # `~` of a user who does not exist
        return folder / text


def _texts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _mapped(mapping: Mapping, folder: Path) -> Iterator[Source]:
    local = local_path(mapping.local, folder)
    place = "" if mapping.remote in (".", "./") else str(PurePosixPath(mapping.remote))
    if local.is_dir():
        yield from folder_sources(local, place)
    else:
        yield file_source(local, f"{place}/{local.name}" if _is_folder(mapping) else place)


def _is_folder(mapping: Mapping) -> bool:
    return mapping.remote.endswith("/") and mapping.remote != "./"


def _folder_at(path: Path) -> Iterator[Source]:
    yield from folder_sources(path)


def _collect(
    collected: list[Source],
    at: tuple[str | int, ...],
    written: str,
    sources: Iterator[Source],
    most: int,
) -> Iterator[Mistake]:
    """Add the sources to those that are found; yield a mistake if one of them cannot be read."""
    name = at[0] if len(at) == 1 else f"{at[0]}[{at[1]}]"
    try:
        collected += islice(sources, most + 1)
        if len(collected) > most:
            message = f"'{name}' is '{written}', which has more than {most:,} files"
            yield Mistake("E243", message, "name what is not needed in .gpuctlignore", at)
    except (FileNotFoundError, ValueError):  # a NUL is in no path
        yield Mistake("E242", f"'{name}' is '{written}', which does not exist", _RELATIVE, at)
    except NotADirectoryError:
        yield Mistake("E242", f"'{name}' is '{written}', which is no folder", _RELATIVE, at)
    except NotRegular as error:
        message = f"'{name}' is '{written}': {error.strerror}"
        yield Mistake("E242", message, "name a regular file or a folder", at)
    except OSError as error:
        message = f"'{name}': {error.filename} cannot be read: {error.strerror}"
        yield Mistake("E242", message, "make it readable, or name it in .gpuctlignore", at)


def _mapping_mistake(entry: str) -> tuple[str, str] | None:
    """Return message and hint for an entry of `files` in a wrong form, or None."""
    if entry.count(":") > 1 or entry.startswith(":"):
        return "which is not LOCAL:REMOTE", "write a path, a colon and a path"
    if _leaves(parse_mapping(entry).remote):
        return "which is not in the working folder", "write LOCAL:REMOTE with a relative REMOTE"
    return None


def _leaves(path: str) -> bool:
    return path.startswith(("/", "~")) or ".." in PurePosixPath(path).parts or "\0" in path


def _outputs(data: Data) -> Iterator[Mistake]:
    for index, pattern in enumerate(_texts(data.get("outputs"))):
        if not isinstance(pattern, str):
            continue
        name, at = f"'outputs[{index}]' is '{pattern}'", ("outputs", index)
        if _leaves(pattern):
            hint = "write a relative path, and let the job write there"
            yield Mistake("E241", f"{name}, which is not in the working folder", hint, at)
        elif any("**" in part and part != "**" for part in pattern.split("/")):
            hint = "write ** alone between two /: logs/**/*.json"
            yield Mistake("E241", f"{name}, where ** is a part of a name", hint, at)


def _size(data: Data, sources: list[Source]) -> Iterator[Mistake]:
    limit = str(data.get("code_limit", Run.model_fields["code_limit"].default))
    mistake = size_mistake(sources, limit) if re.fullmatch(SIZE, limit) else None
    if mistake:
        at = next(key for key in ("code_limit", "workdir", "files") if key in data)
        yield Mistake("E243", *mistake, (at,))


def _links(sources: list[Source], at: tuple[str]) -> Iterator[Mistake]:
    paths = [
        source.path
        for source in sources
        if source.kind == "link" and leads_out(source.path, source.target)
    ]
    if paths:
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        message = f"links lead out of the working folder: {', '.join(paths[:_SHOWN])}{more}"
        hint = "on the nodes they lead to what those have at that path"
        yield Mistake("W241", message, hint, at)
