"""Files of a git repository, fetched by git. A local one stands for the server's."""

import subprocess
from pathlib import Path

import pytest

from config.errors import InputError
from config.run.code import Repo
from engine.repository import checkout

URL = "https://git.example/me/train"


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "server"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{folder}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", URL)
    commit(folder, "one")
    return folder


def commit(folder: Path, text: str) -> str:
    (folder / "train.py").write_text(text)
    (folder / "run.sh").write_text("")
    (folder / "run.sh").chmod(0o755)
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", text)
    return git(folder, "rev-parse", "HEAD")


def test_the_newest_commit_of_the_default_branch(server: Path) -> None:
    folder = checkout(Repo(url=URL))
    assert (folder / "train.py").read_text() == "one"
    assert (folder / "run.sh").stat().st_mode & 0o111
    commit(server, "two")
    assert (checkout(Repo(url=URL)) / "train.py").read_text() == "two"
    assert (folder / "train.py").read_text() == "one"  # a run that began with it still has it


def test_a_branch_and_a_commit(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = git(server, "rev-parse", "HEAD")
    git(server, "checkout", "--quiet", "-b", "new")
    commit(server, "three")
    git(server, "checkout", "--quiet", "main")
    assert (checkout(Repo(url=URL, branch="new")) / "train.py").read_text() == "three"
    assert (checkout(Repo(url=URL, branch="new", commit=old)) / "train.py").read_text() == "one"
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "url.file:///nothing.insteadOf")
    assert (checkout(Repo(url=URL, commit=old)) / "train.py").read_text() == "one"  # is kept


def test_a_repository_that_cannot_be_fetched_gives_gits_reason(server: Path) -> None:
    with pytest.raises(InputError) as refused:
        checkout(Repo(url=URL, branch="nothing"))
    assert str(refused.value) == (
        f"repository {URL} cannot be fetched: fatal: couldn't find remote ref nothing; try"
        " `git ls-remote` with that URL; branch and commit must be on the server"
    )
