"""The files of a git repository at a commit, fetched by the user's git on this machine.

So credentials stay with the user's credential helper or ssh agent, and nodes need no git.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from config.errors import InputError
from config.folders import cache_home
from config.run.code import Repo

_HEAD = "HEAD"


def checkout(repo: Repo) -> Path:
    """Return a folder with the repository's files at the wanted commit.

    The folder is in gpuctl's cache, named by the commit. Raises InputError with git's reason.
    """
    folder = cache_home() / "repos" / hashlib.sha256(repo.url.encode()).hexdigest()[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = folder / "git"
    if not (store / _HEAD).exists():
        _git(repo, "init", "--quiet", "--bare", str(store))
    wanted = repo.commit or repo.branch or _HEAD
    known = repo.commit and _has(store, repo.commit)
    if not known:
        at = ("-C", str(store))
        _git(repo, *at, "fetch", "--quiet", "--depth=1", "--no-tags", "--", repo.url, wanted)
        found = _git(repo, *at, "rev-parse", "FETCH_HEAD").strip()
    else:
        found = wanted
    files = folder / found
    if not files.is_dir():
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
        tree = f"--work-tree={part}"
        with tempfile.TemporaryDirectory() as index:
            environment = {"GIT_INDEX_FILE": f"{index}/index"}
            git = (f"--git-dir={store}", tree)
            _git(repo, *git, "checkout", "--quiet", "--force", found, "--", ".", env=environment)
        try:
            part.rename(files)
        except OSError:  # another gpuctl was first
            shutil.rmtree(part)
    return files


def _has(store: Path, commit: str) -> bool:
    command = ["git", "-C", str(store), "cat-file", "-e", f"{commit}^{{commit}}"]
    return _call(command, {}).returncode == 0


def _git(repo: Repo, *words: str, env: dict[str, str] | None = None) -> str:
    """Run git and return its output; InputError with its last line if it fails."""
    done = _call(["git", *words], env or {})
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(
            f"repository {repo.url} cannot be fetched: {reason}",
            "try `git ls-remote` with that URL; branch and commit must be on the server",
        )
    return done.stdout


def _call(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
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
