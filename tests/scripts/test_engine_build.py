"""`make engine`: where Go comes from, how it builds Pulumi's engine, and when it has to."""

import hashlib
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from config.errors import InfraError, InputError
from config.progress import Progress, silent
from infra.stack.installation import VERSION as PULUMI
from infra.stack.installation import Engine, installed_engine
from scripts.pulumi_engine.__main__ import ensure_engine
from scripts.pulumi_engine.build import build_engine
from scripts.pulumi_engine.go_toolchain import (
    SHA256,
    SOURCE,
    VERSION,
    ensure_go,
    is_new_enough,
    proxy_url,
    required_go,
    version_of,
)
from tests.infra.test_engine import cache, cached, closed_network, command
from tests.infra.test_engine_download import release

__all__ = ["cache", "closed_network", "release"]  # fixtures

ROOT = Path(__file__).parents[2]
GOOD_GO = "go version go1.26.8 linux/amd64"


def test_go_on_path_is_used_if_it_is_new_enough(cache: Path, tmp_path: Path) -> None:
    go = command(tmp_path / "bin" / "go", GOOD_GO)
    assert ensure_go(silent) == go
    assert not cache.exists()


@pytest.mark.parametrize(
    ("version", "fitting"),
    [("1.25.11", True), ("1.26", True), ("1.25.10", False), ("1.9", False), (None, False)],
)
def test_go_is_refused_if_it_is_older_than_the_modules_need(
    version: str | None, fitting: bool
) -> None:
    assert required_go() == "1.25.11"
    assert is_new_enough(version) is fitting


def test_a_command_that_is_not_go_has_no_version(tmp_path: Path) -> None:
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
def test_the_first_proxy_of_goproxy_is_used(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, url: str
) -> None:
    monkeypatch.delenv("GOPROXY", raising=False)
    if setting is not None:
        monkeypatch.setenv("GOPROXY", setting)
    assert proxy_url() == url


def test_goproxy_off_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setitem(SHA256, archive.name, sha256)
    return archive


@pytest.mark.parametrize("machine", ["linux-amd64", "linux-arm64"])
def test_every_archive_of_go_has_a_sha256(machine: str) -> None:
    assert len(bytes.fromhex(SHA256[f"v0.0.1-go{VERSION}.{machine}.zip"])) == 32


def test_the_modules_are_of_the_engines_version() -> None:
    modules, sums = (SOURCE / "go.mod").read_text(), (SOURCE / "go.sum").read_text()
    assert "\ntool github.com/pulumi/pulumi/pkg/v3/cmd/pulumi\n" in modules
    for module in ("pkg", "sdk"):
        assert f"\tgithub.com/pulumi/pulumi/{module}/v3 v{PULUMI} // indirect\n" in modules
        assert f"github.com/pulumi/pulumi/{module}/v3 v{PULUMI} h1:" in sums


@pytest.mark.usefixtures("module_proxy")
def test_go_is_downloaded_once_if_path_has_none(cache: Path, module_proxy: Path) -> None:
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


def test_an_archive_of_go_with_another_sha256_is_removed(cache: Path, module_proxy: Path) -> None:
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


def test_a_proxy_that_cannot_be_reached_is_an_error(cache: Path, module_proxy: Path) -> None:
    module_proxy.unlink()
    with pytest.raises(InfraError, match=r"\.zip cannot be downloaded \(.*No such file") as caught:
        ensure_go(silent)
    assert caught.value.hint == "install Go >= 1.25.11, or set GOPROXY to a Go module proxy"


def test_a_machine_without_a_pinned_go_is_an_error(
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
mkdir -p "$(dirname "$2")"; printf '#!/bin/sh\\necho v3.258.0\\n' > "$2"; chmod +x "$2"
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
    build_engine(root, silent)
    assert [path.name for path in root.rglob("*")] == ["bin", "pulumi"]
    called = fake_go.read_text().splitlines()
    assert "-trimpath" in called
    assert "-mod=readonly" in called
    variable = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
    assert f"-s -w -X {variable}=v3.258.0" in called
    assert "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi" in called
    assert "GOTOOLCHAIN=local" in called
    assert called[-1] == str(root / "source")


def test_both_password_meters_are_replaced(fake_go: Path, tmp_path: Path) -> None:
    """Go takes both password meters from `entropy/`, which is copied with the other sources."""
    command(tmp_path / "bin" / "go", "").write_text(
        FAKE_GO.replace("echo $$", 'ls entropy > "$RECORD.folder"; echo $$', 1)
    )
    (tmp_path / "root").mkdir()
    build_engine(tmp_path / "root", silent)
    assert Path(f"{fake_go}.folder").read_text() == "go.mod\nzxcvbn.go\n"
    modules = (SOURCE / "go.mod").read_text()
    for owner, folder in (("ccojocar", "./entropy"), ("nbutton23", "./entropy/")):
        assert f"\tgithub.com/{owner}/zxcvbn-go => {folder}\n" in modules


def test_a_failed_build_shows_the_compilers_message(
    fake_go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAK", "no space left on device")
    (tmp_path / "root").mkdir()
    with pytest.raises(InfraError) as caught:
        build_engine(tmp_path / "root", silent)
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
        build_engine(tmp_path / "root", interrupt)
    assert details[0].startswith("building: ")
    assert details[0].endswith(" packages compiled")
    with pytest.raises(ProcessLookupError):
        os.kill(int(fake_go.read_text().splitlines()[0]), 0)


@pytest.mark.usefixtures("closed_network", "fake_go")
def test_gpuctl_finds_the_engine_that_make_engine_builds(cache: Path) -> None:
    reported: list[Progress] = []
    assert ensure_engine(reported.append) == Engine(cached(cache), PULUMI, "cache")
    assert installed_engine() == Engine(cached(cache), PULUMI, "cache")
    (failed,) = [progress for progress in reported if progress.state == "failed"]
    assert failed.detail == (
        f"https://get.pulumi.com/releases/sdk/pulumi-v{PULUMI}-linux-x64.tar.gz cannot be"
        " downloaded ([Errno 111] Connection refused); building instead"
    )


def test_make_engine_builds_nothing_if_the_download_works(
    cache: Path, release: Path, fake_go: Path
) -> None:
    assert ensure_engine(silent, f"file://{release.parent}") == Engine(
        cached(cache), PULUMI, "cache"
    )
    assert not fake_go.exists()


def test_make_engine_builds_if_the_download_has_another_sha256(
    cache: Path, release: Path, fake_go: Path
) -> None:
    release.write_bytes(b"<html>sign in</html>")
    reported: list[Progress] = []
    engine = ensure_engine(reported.append, f"file://{release.parent}")
    assert engine == Engine(cached(cache), PULUMI, "cache")
    assert "-mod=readonly" in fake_go.read_text().splitlines()
    (failed,) = [progress for progress in reported if progress.state == "failed"]
    assert failed.detail.startswith(f"file://{release} is not the pinned file and was removed: ")


@pytest.mark.usefixtures("closed_network")
def test_make_engine_builds_nothing_if_gpuctl_finds_an_engine(
    cache: Path, fake_go: Path, tmp_path: Path
) -> None:
    path = command(tmp_path / "bin" / "pulumi", "v3.260.0")
    assert ensure_engine(silent) == Engine(path, "3.260.0", "path")
    assert not fake_go.exists()


def test_make_engine_reports_a_wrong_setting_and_builds_nothing(
    cache: Path, fake_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCTL_PULUMI", "/no/such/pulumi")
    with pytest.raises(InputError, match=r"^the setting 'pulumi' "):
        ensure_engine(silent)
    assert not fake_go.exists()


@pytest.mark.usefixtures("closed_network", "fake_go")
def test_a_failed_build_leaves_nothing_in_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAK", "no space left on device")
    with pytest.raises(InfraError) as caught:
        ensure_engine(silent)
    assert str(caught.value) == (
        "go build ended with 1: y.go:1:2: no space left on device; allow HTTPS to the Go module"
        " proxy (GOPROXY), and free 4 GiB of disk space"
    )
    assert [path.name for path in (cache / "engine").iterdir()] == ["lock"]


@pytest.mark.parametrize("target", ["engine", "demo", "test", "soak"])
def test_make_installs_the_engine_before_commands_need_it(target: str) -> None:
    """Where downloads are closed, gpuctl itself would fail."""
    asked = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "scripts/engine" in asked.stdout.splitlines()
