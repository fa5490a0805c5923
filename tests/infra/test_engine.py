"""The engine is found in order, made whole or not at all; where nothing works one line says so."""

import platform
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from config.errors import InfraError
from config.progress import Progress, Reporter, silent
from infra.pulumi_engine import installation as engine_module
from infra.pulumi_engine.download import download_engine
from infra.pulumi_engine.go_toolchain import SOURCE
from infra.pulumi_engine.installation import (
    VERSION,
    Engine,
    EngineSource,
    cached_engine,
    engine_on_path,
    engine_version,
    find_engine,
    findings,
    fits,
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH with nothing of Pulumi or Go."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "cache" / "gpuctl"


def command(path: Path, answer: str, status: int = 0) -> Path:
    """A command at `path` that prints `answer`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n")
    path.chmod(0o755)
    return path


def held(cache: Path) -> Path:
    return cache / "engine" / f"v{VERSION}-2" / "bin" / "pulumi"


def test_sdk_engine_and_modules_have_one_version() -> None:
    assert version("pulumi") == VERSION
    modules = (SOURCE / "go.mod").read_text()
    assert "\ntool github.com/pulumi/pulumi/pkg/v3/cmd/pulumi\n" in modules
    for module in ("pkg", "sdk"):
        assert f"\tgithub.com/pulumi/pulumi/{module}/v3 v{VERSION} // indirect\n" in modules
        assert (
            f"github.com/pulumi/pulumi/{module}/v3 v{VERSION} h1:"
            in (SOURCE / "go.sum").read_text()
        )


@pytest.mark.parametrize(
    ("number", "fitting"),
    [
        *(("3.258.0", True), ("3.258.1", True), ("3.300.0", True), ("v3.258.0", True)),
        *(("3.257.9", False), ("2.999.0", False), ("4.0.0", False)),
        *(("3.259.0-alpha.1", False), ("3.258.0+dirty", True), ("dev", False), (None, False)),
    ],
)
def test_fitting_is_the_same_major_and_not_older(number: str | None, fitting: bool) -> None:
    assert fits(number) is fitting


def test_the_one_on_path_comes_first(cache: Path, tmp_path: Path) -> None:
    found = command(tmp_path / "bin" / "pulumi", "v3.260.0")
    command(held(cache), f"v{VERSION}")
    assert find_engine(silent) == Engine(found, "3.260.0", "path")


def test_an_old_one_on_path_is_passed_over_for_the_cached(cache: Path, tmp_path: Path) -> None:
    old = command(tmp_path / "bin" / "pulumi", "v3.100.0")
    command(held(cache), f"v{VERSION}")
    assert find_engine(silent) == Engine(held(cache), VERSION, "cache")
    with pytest.raises(InfraError) as caught:
        engine_on_path(silent)
    assert str(caught.value) == f"{old} is 3.100.0; upgrade it to >= {VERSION}"


def test_a_damaged_cached_engine_counts_as_none(cache: Path) -> None:
    command(held(cache), "Exec format error", status=126)
    with pytest.raises(InfraError, match="does not run here"):
        cached_engine(silent)


def test_our_own_engine_is_asked_for_its_version_once(cache: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    path = command(held(cache), f"v{VERSION}'; echo asked >> '{asked}")
    for _ in range(2):
        assert cached_engine(silent) == Engine(path, VERSION, "cache")
    assert asked.read_text() == "asked\n"
    command(path, "Exec format error", status=126)
    with pytest.raises(InfraError, match="does not run here"):
        cached_engine(silent)


def test_what_is_no_pulumi_has_no_version(tmp_path: Path) -> None:
    assert engine_version(command(tmp_path / "a", "hello")) is None
    assert engine_version(command(tmp_path / "b", "v3.258.0", status=1)) is None
    assert engine_version(tmp_path / "missing") is None


def test_where_nothing_works_one_line_says_what_was_tried(cache: Path) -> None:
    def closed(_: Reporter) -> Engine:
        raise InfraError("get.pulumi.com gave none (no such host)", "")

    def no_go(_: Reporter) -> Engine:
        raise InfraError("no Go", "")

    reported: list[Progress] = []
    ways: dict[str, EngineSource] = {
        "PATH": engine_on_path,
        "cache": cached_engine,
        "download": closed,
        "build": no_go,
    }
    with pytest.raises(InfraError) as caught:
        find_engine(reported.append, ways)
    assert str(caught.value) == (
        f"the Pulumi engine >= {VERSION} is not installed and cannot be installed (PATH: no pulumi;"
        " cache: empty; download: get.pulumi.com gave none (no such host); build: no Go); put"
        " `pulumi` on PATH (https://www.pulumi.com/docs/install), or allow HTTPS to"
        " get.pulumi.com or to a Go module proxy (GOPROXY)"
    )
    assert reported[-1].state == "failed"


def stand_in(
    seconds: float = 0.0, *, fails: bool = False, made: list[Path] | None = None
) -> Callable[[str, Path, Reporter], None]:
    """A maker of engines that takes `seconds`, and leaves half an engine where it fails."""

    def make(number: str, root: Path, report: Reporter) -> None:
        if made is not None:
            made.append(root)
        (root / "bin").mkdir()
        (root / "bin" / "pulumi").write_text("#!/bin/sh\n")
        time.sleep(seconds)
        if fails:
            raise InfraError("go build ended with 1: no space left on device", "free some disk")
        command(root / "bin" / "pulumi", f"v{number}")

    return make


def test_a_made_engine_lies_in_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "build_engine", stand_in())
    reported: list[Progress] = []
    made = find_engine(reported.append, {"build": engine_module.install_built_engine})
    assert made == Engine(held(cache), VERSION, "build")
    assert cached_engine(silent).path == held(cache)
    assert [(p.stage, p.state) for p in reported] == [("engine", "start"), ("engine", "done")]
    assert reported[-1].seconds is not None


def test_a_failed_build_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "build_engine", stand_in(fails=True))
    with pytest.raises(InfraError, match="no space left on device"):
        find_engine(silent, {"build": engine_module.install_built_engine})
    assert [path.name for path in (cache / "engine").iterdir()] == ["lock"]


def test_an_engine_that_does_not_answer_is_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(number: str, root: Path, report: Reporter) -> None:
        command(root / "bin" / "pulumi", "v3.1.0")

    monkeypatch.setattr(engine_module, "build_engine", make)
    with pytest.raises(InfraError, match=r"Pulumi engine has version 3\.1\.0, not 3"):
        find_engine(silent, {"build": engine_module.install_built_engine})
    assert not held(cache).exists()


def test_what_a_killed_build_left_is_cleared(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "engine" / ".making-old" / "root").mkdir(parents=True)
    monkeypatch.setattr(engine_module, "build_engine", stand_in())
    find_engine(silent, {"build": engine_module.install_built_engine})
    assert sorted(p.name for p in (cache / "engine").iterdir()) == ["lock", f"v{VERSION}-2"]


def test_two_at_once_make_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr(engine_module, "build_engine", stand_in(0.3, made=made))
    found: list[Engine] = []
    details: list[str] = []

    def find() -> None:
        ways: dict[str, EngineSource] = {"build": engine_module.install_built_engine}
        found.append(find_engine(lambda p: details.append(p.detail), ways))

    threads = [threading.Thread(target=find) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert sorted(engine.source for engine in found) == ["build", "cache", "cache"]
    assert details.count("another gpuctl is installing it") == 2


def test_an_unwritable_cache_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    with pytest.raises(InfraError, match=r"/proc/nowhere/gpuctl/engine cannot be written \("):
        find_engine(silent, {"build": engine_module.install_built_engine})


def test_a_closed_network_fails_the_download_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An earlier test of this process may have made the opener, which keeps that time's proxies.
    monkeypatch.setattr("urllib.request._opener", None)
    # Port 1 of loopback refuses: no name is looked up and no packet leaves the machine.
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    name = f"pulumi-v{VERSION}-{sys.platform}-{machine}.tar.gz"
    started = time.monotonic()
    with pytest.raises(InfraError) as caught:
        download_engine(VERSION, tmp_path, silent)
    assert str(caught.value) == (
        f"https://get.pulumi.com/releases/sdk/{name} cannot be downloaded ([Errno 111] Connection"
        " refused); allow HTTPS to get.pulumi.com"
    )
    assert time.monotonic() - started < 30


def test_doctor_sees_without_touching(cache: Path, tmp_path: Path) -> None:
    command(tmp_path / "bin" / "pulumi", "v3.100.0")
    command(tmp_path / "bin" / "go", "go version go1.19.2 linux/amd64")
    assert [(s.what, s.seen, s.remedy) for s in findings()] == [
        (
            "pulumi on PATH",
            f"{tmp_path}/bin/pulumi 3.100.0",
            f"upgrade it to >= {VERSION}, or ignore it: gpuctl installs its own",
        ),
        (
            "pulumi in the cache",
            "none",
            "the first command that needs it installs it (minutes)",
        ),
        (
            "go",
            f"{tmp_path}/bin/go 1.19.2",
            "gpuctl downloads Go 1.26.8 if it must build the Pulumi engine; >= 1.25.11 on PATH"
            " would do",
        ),
    ]
    assert not cache.exists()


def test_doctor_has_no_remedy_where_all_is_well(cache: Path) -> None:
    command(held(cache), f"v{VERSION}")
    assert [s.remedy for s in findings()] == ["", "", ""]


@pytest.mark.engine
def test_the_real_engine_answers() -> None:
    engine = find_engine(silent)
    assert fits(engine.version)
    assert engine_version(engine.path) == engine.version
