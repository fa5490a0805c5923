"""Go is found or fetched from a module proxy, and its build is watched and cleaned up after."""

import hashlib
import os
import platform
import sys
import zipfile
from pathlib import Path

import pytest

from config.errors import InfraError
from config.progress import Progress, silent
from infra.pulumi_engine import pinned_downloads
from infra.pulumi_engine.build import build_engine
from infra.pulumi_engine.go_toolchain import (
    SOURCE,
    VERSION,
    ensure_go,
    is_new_enough,
    proxy_url,
    required_go,
    version_of,
)
from tests.infra.test_engine import cache, command

__all__ = ["cache"]  # the fixture

GOOD_GO = "go version go1.26.8 linux/amd64"


def test_go_on_path_is_used_where_it_fits(cache: Path, tmp_path: Path) -> None:
    go = command(tmp_path / "bin" / "go", GOOD_GO)
    assert ensure_go(silent) == go
    assert not cache.exists()


@pytest.mark.parametrize(
    ("version", "fitting"),
    [("1.25.11", True), ("1.26", True), ("1.25.10", False), ("1.9", False), (None, False)],
)
def test_go_is_not_older_than_the_modules_ask(version: str | None, fitting: bool) -> None:
    assert required_go() == "1.25.11"
    assert is_new_enough(version) is fitting


def test_what_is_no_go_has_no_version(tmp_path: Path) -> None:
    assert version_of(command(tmp_path / "go", "Go, the game")) is None
    assert version_of(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        (None, "https://proxy.golang.org"),
        ("", "https://proxy.golang.org"),
        ("direct", "https://proxy.golang.org"),
        ("https://goproxy.corp/,https://proxy.golang.org,direct", "https://goproxy.corp"),
        ("direct|https://goproxy.corp", "https://goproxy.corp"),
    ],
)
def test_the_first_proxy(monkeypatch: pytest.MonkeyPatch, setting: str | None, url: str) -> None:
    monkeypatch.delenv("GOPROXY", raising=False)
    if setting is not None:
        monkeypatch.setenv("GOPROXY", setting)
    assert proxy_url() == url


def test_no_proxy_is_asked_where_the_user_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(InfraError, match=r"^GOPROXY is off; unset GOPROXY"):
        proxy_url()


@pytest.fixture
def module_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module proxy in a folder that serves a toolchain with one command; the archive's path."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    module = f"golang.org/toolchain@v0.0.1-go{VERSION}.{sys.platform}-{machine}"
    folder = tmp_path / "proxy" / "golang.org" / "toolchain" / "@v"
    folder.mkdir(parents=True)
    archive = folder / f"{module.partition('@')[2]}.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr(f"{module}/bin/go", f"#!/bin/sh\necho {GOOD_GO}\n")
        files.writestr(f"{module}/pkg/tool/linux/compile", "#!/bin/sh\n")
        files.writestr(f"{module}/LICENSE", "free")
    monkeypatch.setenv("GOPROXY", f"file://{tmp_path / 'proxy'},direct")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(f"# ours\n{sha256}  {archive.name}\n")
    monkeypatch.setattr(pinned_downloads, "SUMS", sums)
    return archive


@pytest.mark.usefixtures("module_proxy")
def test_a_machine_without_go_fetches_it_once(cache: Path, module_proxy: Path) -> None:
    reported: list[Progress] = []
    go = ensure_go(reported.append)
    assert go == cache / "go" / f"go{VERSION}" / "bin" / "go"
    assert version_of(go) == "1.26.8"
    assert (go.parents[1] / "pkg/tool/linux/compile").stat().st_mode & 0o111
    assert not (go.parents[1] / "LICENSE").stat().st_mode & 0o111
    assert [path.name for path in (cache / "go").iterdir()] == [f"go{VERSION}"]
    assert reported[-1].stage == "engine"
    module_proxy.unlink()
    assert ensure_go(silent) == go


def test_another_archive_than_the_pinned_is_removed_and_refused(
    cache: Path, module_proxy: Path
) -> None:
    pinned_sum = hashlib.sha256(module_proxy.read_bytes()).hexdigest()
    module_proxy.write_bytes(module_proxy.read_bytes() + b"\0")
    actual = hashlib.sha256(module_proxy.read_bytes()).hexdigest()
    with pytest.raises(InfraError) as caught:
        ensure_go(silent)
    assert str(caught.value) == (
        f"file://{module_proxy} is not the pinned file and was removed: sha256 {actual}, not"
        f" {pinned_sum}; find out which server or proxy sends another file"
    )
    assert list((cache / "go").iterdir()) == []


def test_a_proxy_that_is_not_there(cache: Path, module_proxy: Path) -> None:
    module_proxy.unlink()
    with pytest.raises(InfraError, match=r"\.zip cannot be downloaded \(.*No such file") as caught:
        ensure_go(silent)
    assert caught.value.hint == "install Go >= 1.25.11, or set GOPROXY to a Go module proxy"


def test_a_machine_that_no_go_is_pinned_for(
    cache: Path, module_proxy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(InfraError) as caught:
        ensure_go(silent)
    assert str(caught.value) == (
        f"no Go >= 1.25.11 on PATH, and none is pinned for {sys.platform}-riscv64;"
        " install Go >= 1.25.11"
    )


FAKE_GO = """#!/bin/sh
if [ "$1" = version ]; then echo go version go1.26.8 linux/amd64; exit; fi
echo $$ > "$RECORD"; printf '%s\\n' "$@" >> "$RECORD"; env >> "$RECORD"; pwd >> "$RECORD"
echo "go: downloading github.com/x/y v1.0.0" >&2
echo "github.com/x/y" >&2
if [ -n "$SLOW" ]; then for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3; echo p$i >&2; done; fi
if [ -n "$BREAK" ]; then echo "y.go:1:2: $BREAK" >&2; exit 1; fi
while [ "$1" != -o ]; do shift; done
mkdir -p "$(dirname "$2")"; echo engine > "$2"
"""


@pytest.fixture
def fake_go(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` on PATH that writes down how it was called; the file it writes to."""
    command(tmp_path / "bin" / "go", "").write_text(FAKE_GO)
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    return tmp_path / "record"


def test_the_engine_is_built_from_the_pinned_modules(fake_go: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    build_engine("3.258.0", root, silent)
    assert [path.name for path in root.rglob("*")] == ["bin", "pulumi"]
    called = fake_go.read_text().splitlines()
    assert "-trimpath" in called
    assert "-mod=readonly" in called
    variable = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
    assert f"-s -w -X {variable}=v3.258.0" in called
    assert "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi" in called
    assert "GOTOOLCHAIN=local" in called
    assert called[-1] == str(root / "source")


def test_the_built_engine_has_no_dictionaries_to_fill(fake_go: Path, tmp_path: Path) -> None:
    """Go takes both password meters from `entropy/`, which is copied with the other sources."""
    command(tmp_path / "bin" / "go", "").write_text(
        FAKE_GO.replace("echo $$", 'ls entropy > "$RECORD.folder"; echo $$', 1)
    )
    (tmp_path / "root").mkdir()
    build_engine("3.258.0", tmp_path / "root", silent)
    assert Path(f"{fake_go}.folder").read_text() == "go.mod\nzxcvbn.go\n"
    modules = (SOURCE / "go.mod").read_text()
    for owner, folder in (("ccojocar", "./entropy"), ("nbutton23", "./entropy/")):
        assert f"\tgithub.com/{owner}/zxcvbn-go => {folder}\n" in modules


def test_a_build_that_fails_shows_the_compilers_words(
    fake_go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAK", "no space left on device")
    (tmp_path / "root").mkdir()
    with pytest.raises(InfraError) as caught:
        build_engine("3.258.0", tmp_path / "root", silent)
    assert caught.value.message == "go build ended with 1: y.go:1:2: no space left on device"


def test_an_interrupted_build_leaves_no_compiler_running(
    fake_go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW", "yes")
    (tmp_path / "root").mkdir()
    details: list[str] = []

    def interrupt(progress: Progress) -> None:
        details.append(progress.detail)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_engine("3.258.0", tmp_path / "root", interrupt)
    assert details[0].startswith("building: ")
    assert details[0].endswith(" packages compiled")
    with pytest.raises(ProcessLookupError):
        os.kill(int(fake_go.read_text().splitlines()[0]), 0)
