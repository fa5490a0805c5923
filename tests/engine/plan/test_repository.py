"""Files of a git repository, fetched by git. A local one stands for the server's."""

import subprocess
from pathlib import Path

import pytest

from config.errors import InputError
from config.run.code import Repo
from engine.plan.source_tree import _absolute, checkout

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


def test_advice_of_git_about_ssh_is_not_its_reason(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "other")
    monkeypatch.setenv("GIT_SSH_COMMAND", "false")
    with pytest.raises(InputError) as refused:
        checkout(Repo(url="git@git.example:me/train"))
    assert str(refused.value) == (
        "repository git@git.example:me/train cannot be fetched: fatal: Could not read from remote"
        " repository.; try `git ls-remote` with that URL; branch and commit must be on the server"
    )


def test_a_repository_that_cannot_be_fetched_gives_gits_reason(server: Path) -> None:
    with pytest.raises(InputError) as refused:
        checkout(Repo(url=URL, branch="nothing"))
    assert str(refused.value) == (
        f"repository {URL} cannot be fetched: fatal: couldn't find remote ref nothing; try"
        " `git ls-remote` with that URL; branch and commit must be on the server"
    )


POINTER = """\
version https://git-lfs.github.com/spec/v1
oid sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
size 4
"""

# It writes what it has instead of a pointer, and where it would ask.
FILTER = """\
#!/bin/sh
pointer=$(cat)
case "$pointer" in version*) echo "content from $(git config remote.origin.url)";; esac
"""


@pytest.fixture
def large_file(server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository with a file of Git LFS; the user's git has no filter for it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (server / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    (server / "model.bin").write_text(POINTER)
    (server / "notes").write_text(f"A pointer is\n{POINTER}")
    commit(server, "large")


@pytest.mark.usefixtures("large_file")
def test_a_pointer_of_git_lfs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # it is not kept either
        with pytest.raises(InputError) as refused:
            checkout(Repo(url=URL))
        assert str(refused.value) == (
            f"repository {URL}: model.bin would be a pointer of Git LFS, without its content;"
            " `apt-get install -y git-lfs && git lfs install`, or set GIT_LFS_SKIP_SMUDGE=1 if the"
            " job does not need it"
        )
    monkeypatch.setenv("GIT_LFS_SKIP_SMUDGE", "1")
    assert (checkout(Repo(url=URL)) / "model.bin").read_text() == POINTER
    monkeypatch.delenv("GIT_LFS_SKIP_SMUDGE")
    with pytest.raises(InputError):
        checkout(Repo(url=URL))


@pytest.mark.usefixtures("large_file")
def test_the_users_git_lfs_knows_where_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smudge = tmp_path / "smudge"
    smudge.write_text(FILTER)
    smudge.chmod(0o755)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    monkeypatch.setenv("GIT_CONFIG_KEY_1", "filter.lfs.smudge")
    monkeypatch.setenv("GIT_CONFIG_VALUE_1", str(smudge))
    assert (checkout(Repo(url=URL)) / "model.bin").read_text() == f"content from {URL}\n"


@pytest.fixture
def library(server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository on the same host, which is a submodule of a submodule of the server's."""
    for name in ("middle", "library"):
        folder = tmp_path / name
        folder.mkdir()
        git(folder, "init", "--quiet", "--initial-branch=main")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{tmp_path}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.example/me/")
    (tmp_path / "train").symlink_to(server)
    wanted = commit(tmp_path / "library", "library")
    commit(tmp_path / "library", "newer")
    add_submodule(tmp_path / "middle", "lib", "../library", wanted)
    add_submodule(server, "parts/middle", "https://git.example/me/middle", git_head(folder.parent))
    return tmp_path / "library"


def git_head(folder: Path) -> str:
    return git(folder / "middle", "rev-parse", "HEAD")


def add_submodule(folder: Path, path: str, url: str, wanted: str) -> None:
    with (folder / ".gitmodules").open("a") as file:
        file.write(f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n')
    git(folder, "add", "-A")
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{wanted},{path}")
    git(folder, "commit", "--quiet", "-m", path)


@pytest.mark.usefixtures("library")
def test_submodules_come_at_their_commits() -> None:
    folder = checkout(Repo(url=URL))
    assert (folder / "train.py").read_text() == "one"
    library = folder / "parts" / "middle" / "lib"
    assert (library / "train.py").read_text() == "library"
    assert (library / "run.sh").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "file:///etc",
            "its address is not https://HOST/PATH, ssh://HOST/PATH or USER@HOST:PATH; change its"
            " address in the repository",
        ),
        (
            "../gone",
            "repository https://git.example/me/gone cannot be fetched: fatal: '{folder}/gone' does"
            " not appear to be a git repository; try `git ls-remote` with that URL; branch and"
            " commit must be on the server",
        ),
    ],
)
@pytest.mark.usefixtures("library")
def test_a_submodule_that_cannot_be_fetched_is_named(server: Path, url: str, reason: str) -> None:
    add_submodule(server, "other", url, "1" * 40)
    with pytest.raises(InputError) as refused:
        checkout(Repo(url=URL))
    reason = reason.format(folder=server.parent)
    assert str(refused.value) == f"submodule other of {URL}: {reason}"


def test_a_submodule_without_an_address(server: Path) -> None:
    git(server, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lost")
    git(server, "commit", "--quiet", "-m", "lost")
    with pytest.raises(InputError) as refused:
        checkout(Repo(url=URL))
    assert str(refused.value) == (
        f"submodule lost of {URL}: .gitmodules does not name it; correct that in the repository"
    )


@pytest.mark.parametrize(
    ("url", "base", "whole"),
    [
        ("https://h/x", "https://h/me/train", "https://h/x"),
        ("../lib.git", "https://h/me/train/", "https://h/me/lib.git"),
        ("../../you/lib", "https://h/me/train", "https://h/you/lib"),
        ("./lib", "https://h/me/train", "https://h/me/train/lib"),
        ("../lib", "git@h:train", "git@h:lib"),
        ("../../you/lib", "git@h:me/train", "git@h:you/lib"),
    ],
)
def test_relative_addresses_are_gits(url: str, base: str, whole: str) -> None:
    assert _absolute(url, base) == whole
