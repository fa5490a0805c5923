"""The user's files as a tree: paths, modes and hashes, computed once when a run starts.

A git repository at a commit is fetched by the user's git on this machine. So credentials stay with
the user's credential helper or ssh agent, and nodes need no git.

Files of Git LFS come by the user's git-lfs, which takes its server's address from the remote
`origin` (https://github.com/git-lfs/git-lfs/blob/main/docs/api/server-discovery.md, 2026-11-23).
`git checkout` leaves the folder of a submodule empty: each is fetched as a repository.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from config.errors import InputError
from config.files import LARGEST_FILE, open_regular, os_errors_as
from config.folders import cache_home
from config.run.code import Repo
from config.run.sources import Source

Entry = tuple[str, str, int, str, int]
"""Path, kind (file, folder, link), mode, hash or target, size: as in agent/node/code_store.py."""
_PIECE = 1 << 20


@dataclass(frozen=True)
class Tree:
    """The files of a run, sorted by path. `local` has a file of the user's for each hash.

    `scripts` are the texts that the run's commands name, by path (engine/plan/script.py).
    """

    entries: tuple[Entry, ...]
    local: Mapping[str, Path]
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The hash of paths, modes and content."""
        return hashlib.sha256(json.dumps(self.entries).encode()).hexdigest()

    @property
    def files(self) -> tuple[Entry, ...]:
        """The entries that are files."""
        return tuple(entry for entry in self.entries if entry[1] == "file")

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for *_, size in self.files)


def tree_of(sources: Iterable[Source]) -> Tree:
    """Read and hash all files; InputError for one that cannot be read."""
    entries: list[Entry] = []
    local: dict[str, Path] = {}
    for source in sources:
        content = source.target
        size = source.size
        if source.kind == "file":
            problem = f"{source.local} cannot be read"
            with os_errors_as(InputError, problem, "make it readable"):
                content, size = _hash(source)
            local[content] = source.local
        entries.append((source.path, source.kind, source.mode, content, size))
    return Tree(tuple(entries), local)


def _hash(source: Source) -> tuple[str, int]:
    """Return the sha256 of a file and how many bytes were read.

    A small file is read at once: hashlib.file_digest fills 256 KiB with zeros for each, which
    costs as much as the hashes of 10,000 of them.
    """
    with os.fdopen(open_regular(source.local), "rb", buffering=0) as file:
        start = file.read(_PIECE) or b""  # files of /proc may have nothing yet
        digest, size = hashlib.sha256(start), len(start)
        while data := file.read(_PIECE):
            digest.update(data)
            size += len(data)
            if size > source.size + LARGEST_FILE:  # some files of /proc have no end
                raise OSError(errno.EFBIG, "it grows while it is read", str(source.local))
    return digest.hexdigest(), size


_HEAD = "HEAD"
_NO_ENV: Mapping[str, str] = MappingProxyType({})
_SKIP_LFS = "GIT_LFS_SKIP_SMUDGE"
_POINTER = "version https://git-lfs.github.com/spec/v1"
_POINTER_AT_MOST = 1024
"""Bytes of a pointer (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md, 2026-11-23)."""


def checkout(repo: Repo) -> Path:
    """Return a folder with the repository's files at the wanted commit, and its submodules.

    The folder is in gpuctl's cache, named by the commit. Raises InputError with git's reason.
    """
    folder = cache_home() / "repos" / hashlib.sha256(repo.url.encode()).hexdigest()[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = folder / "git"
    if not (store / _HEAD).exists():
        _git(repo, "init", "--quiet", "--bare", str(store))
    reference = repo.commit or repo.branch or _HEAD
    known = repo.commit and _has(store, repo.commit)
    if not known:
        at = ("-C", str(store))
        _git(repo, *at, "fetch", "--quiet", "--depth=1", "--no-tags", "--", repo.url, reference)
        commit = _git(repo, *at, "rev-parse", "FETCH_HEAD").strip()
    else:
        commit = reference
    files = folder / (f"{commit}-pointers" if os.environ.get(_SKIP_LFS) else commit)
    if not files.is_dir():
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
        try:
            _write_files(repo, store, commit, part)
            _add_submodules(repo, store, commit, part)
            with contextlib.suppress(OSError):  # another gpuctl was first
                part.rename(files)
        finally:
            shutil.rmtree(part, ignore_errors=True)  # of a failure; it is in the cache alone
    return files


def _write_files(repo: Repo, store: Path, commit: str, folder: Path) -> None:
    """Write the commit's files; InputError if content is missing that Git LFS keeps."""
    git = ("-c", f"remote.origin.url={repo.url}", f"--git-dir={store}", f"--work-tree={folder}")
    with tempfile.TemporaryDirectory() as index:
        own = {"GIT_INDEX_FILE": f"{index}/index"}
        _git(repo, *git, "checkout", "--quiet", "--force", commit, "--", ".", env=own)
    if os.environ.get(_SKIP_LFS):
        return
    search = ["git", f"--git-dir={store}", "grep", "-lzF", _POINTER, commit]
    names = [name.partition(":")[2] for name in _call(search, _NO_ENV).stdout.split("\0") if name]
    if pointers := [name for name in names if _is_pointer(folder / name)]:
        more = f" and {len(pointers) - 1} more" if pointers[1:] else ""
        raise InputError(
            f"repository {repo.url}: {pointers[0]}{more} would be a pointer of Git LFS, without its"
            " content",
            "`apt-get install -y git-lfs && git lfs install`, or set GIT_LFS_SKIP_SMUDGE=1 if the"
            " job does not need it",
        )


def _is_pointer(path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size >= _POINTER_AT_MOST:
        return False
    return path.read_bytes().startswith(_POINTER.encode())


def _add_submodules(repo: Repo, store: Path, commit: str, folder: Path) -> None:
    """Copy the files of each submodule into its folder; InputError if one cannot be fetched."""
    paths = list(_gitlinks(repo, store, commit))
    urls = _submodule_urls(repo, folder) if paths else {}
    for path, submodule_commit in paths:
        try:
            files = checkout(_submodule(urls.get(path), submodule_commit, repo))
        except InputError as error:
            message = f"submodule {path} of {repo.url}: {error.message}"
            raise InputError(message, error.hint) from error
        shutil.copytree(files, folder / path, symlinks=True, dirs_exist_ok=True)


def _submodule(url: str | None, commit: str, repo: Repo) -> Repo:
    """Return the submodule as a repository; InputError for one that gpuctl does not fetch.

    Its address comes from a stranger: `Repo` refuses files of this machine and commands.
    """
    if url is None:
        raise InputError(".gitmodules does not name it", "correct that in the repository")
    try:
        return Repo(url=_absolute(url, repo.url), commit=commit)
    except ValidationError:
        reason = "its address is not https://HOST/PATH, ssh://HOST/PATH or USER@HOST:PATH"
        raise InputError(reason, "change its address in the repository") from None


def _gitlinks(repo: Repo, store: Path, commit: str) -> Iterator[tuple[str, str]]:
    """Yield the path and commit of each submodule."""
    listed = _git(repo, "-C", str(store), "ls-tree", "-rz", commit)
    for entry in filter(None, listed.split("\0")):
        kind, _, path = entry.partition("\t")
        mode, _, name = kind.split(" ")
        if mode == "160000":
            yield path, name


def _submodule_urls(repo: Repo, folder: Path) -> dict[str, str]:
    """Return the addresses in .gitmodules by path."""
    file = folder / ".gitmodules"
    if file.is_symlink() or not file.is_file():
        return {}
    listed = _git(repo, "config", "-z", "--file", str(file), "--list")
    values = dict(entry.partition("\n")[::2] for entry in listed.split("\0") if entry)
    return {
        path: values[f"{key.removesuffix('.path')}.url"]
        for key, path in values.items()
        if key.startswith("submodule.")
        and key.endswith(".path")
        and f"{key.removesuffix('.path')}.url" in values
    }


def _absolute(url: str, base: str) -> str:
    """Return a submodule's address; one with ./ or ../ is relative to the repository's.

    As git does (gitmodules(5), 2026-11-23).
    """
    base, between = base.rstrip("/"), "/"
    if not url.startswith(("./", "../")):
        return url
    while match := re.match(r"\.\.?/", url):
        url = url[match.end() :]
        if match[0] == "../":
            between = "/" if "/" in base else ":"
            base = base.rpartition(between)[0]
    return f"{base}{between}{url}"


def _has(store: Path, commit: str) -> bool:
    command = ["git", "-C", str(store), "cat-file", "-e", f"{commit}^{{commit}}"]
    return _call(command, _NO_ENV).returncode == 0


def _git(repo: Repo, *words: str, env: Mapping[str, str] = _NO_ENV) -> str:
    """Run git and return its output; InputError with its reason if it fails."""
    done = _call(["git", *words], env)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        reason = next((line for line in lines if line.startswith("fatal: ")), lines[-1])
        raise InputError(
            f"repository {repo.url} cannot be fetched: {reason}",
            "try `git ls-remote` with that URL; branch and commit must be on the server",
        )
    return done.stdout


def _call(command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    # GIT_DIR and the like belong to the shell that calls gpuctl, as in a git hook. git asks for a
    # password on the terminal, if there is one.
    kept = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    try:
        return subprocess.run(
            command, env={**kept, **env}, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise InputError("the program `git` is not installed", "apt-get install -y git") from None


_OTHER_REPOSITORY = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}
