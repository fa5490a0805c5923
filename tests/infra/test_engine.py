"""Pulumi's engine: which one gpuctl uses, how it is installed, and the errors."""

import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from config.errors import InfraError, InputError
from config.progress import Progress, Reporter, silent
from infra.stack.installation import (
    VERSION,
    Engine,
    engine_version,
    find_engine,
    fits,
    install_engine,
    installed_engine,
)
from tests.regions import refuse_downloads


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no settings, and a PATH with nothing of Pulumi or Go."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GPUCTL_PULUMI", raising=False)
    monkeypatch.delenv("GPUCTL_PROFILE", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "cache" / "gpuctl"


def command(path: Path, answer: str, status: int = 0) -> Path:
    """A command at `path` that prints `answer`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n")
    path.chmod(0o755)
    return path


def cached(cache: Path) -> Path:
    return cache / "engine" / f"v{VERSION}" / "bin" / "pulumi"


def write_settings(cache: Path, **settings: object) -> Path:
    file = cache.parents[1] / "config" / "gpuctl" / "config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(settings))
    return file


@pytest.fixture
def closed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No HTTPS: every request goes to a proxy that refuses."""
    refuse_downloads(monkeypatch)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("sys.platform", "linux")


def test_sdk_and_engine_have_one_version() -> None:
    assert version("pulumi") == VERSION


@pytest.mark.parametrize(
    ("number", "fitting"),
    [
        ("3.258.0", True),
        ("3.258.1", True),
        ("3.300.0", True),
        ("3.257.9", False),
        ("2.999.0", False),
        ("4.0.0", False),
        ("3.259.0-alpha.1", False),
        ("3.258.0+dirty", True),
        ("dev", False),
        (None, False),
    ],
)
def test_an_engine_fits_if_its_major_is_the_sdks_and_it_is_not_older(
    number: str | None, fitting: bool
) -> None:
    assert fits(number) is fitting


def test_the_engine_of_the_setting_comes_first(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(tmp_path / "bin" / "pulumi", "v3.260.0")
    command(cached(cache), f"v{VERSION}")
    of_file = command(tmp_path / "of_file", "v3.261.0")
    of_variable = command(tmp_path / "home" / "of_variable", "v3.262.0")
    write_settings(cache, pulumi=str(of_file))
    assert find_engine(silent) == Engine(of_file, "3.261.0", "setting")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUCTL_PULUMI", "~/of_variable")
    assert find_engine(silent) == Engine(of_variable, "3.262.0", "setting")


def test_the_engine_of_a_profile_is_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = command(tmp_path / "pulumi", "v3.261.0")
    write_settings(cache, profiles={"work": {"pulumi": str(path)}})
    assert installed_engine() is None
    monkeypatch.setenv("GPUCTL_PROFILE", "work")
    assert installed_engine() == Engine(path, "3.261.0", "setting")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_text("v3.258.0"), "is not a `pulumi` that runs on this machine"),
        (lambda path: command(path, "hello"), "is not a `pulumi` that runs on this machine"),
        (lambda path: command(path, "v3.100.0"), "is Pulumi 3.100.0"),
        (lambda path: command(path, "v4.0.0"), "is Pulumi 4.0.0"),
    ],
)
def test_a_setting_that_names_no_fitting_engine_is_an_error(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], object],
    problem: str,
) -> None:
    """Another engine would work, but the user chose this one."""
    command(tmp_path / "bin" / "pulumi", "v3.260.0")
    path = tmp_path / "chosen"
    make(path)
    monkeypatch.setenv("GPUCTL_PULUMI", str(path))
    with pytest.raises(InputError) as caught:
        find_engine(silent)
    assert str(caught.value) == (
        f"the setting 'pulumi' ($GPUCTL_PULUMI) is {path}, which {problem}; name the command"
        f" `pulumi` of Pulumi >= {VERSION} there, or remove the setting"
    )


def test_the_error_about_the_setting_names_its_line(cache: Path, tmp_path: Path) -> None:
    file = write_settings(cache, pulumi="/no/such/pulumi", region="us-east-1")
    with pytest.raises(InputError) as caught:
        installed_engine()
    assert caught.value.message == (
        f"the setting 'pulumi' ({file}:1) is /no/such/pulumi, which does not exist"
    )


def test_the_engine_on_path_comes_before_the_cached(cache: Path, tmp_path: Path) -> None:
    path = command(tmp_path / "bin" / "pulumi", "v3.260.0")
    command(cached(cache), f"v{VERSION}")
    assert find_engine(silent) == Engine(path, "3.260.0", "path")


def test_an_old_engine_on_path_is_passed_over_for_the_cached(cache: Path, tmp_path: Path) -> None:
    command(tmp_path / "bin" / "pulumi", "v3.100.0")
    command(cached(cache), f"v{VERSION}")
    assert find_engine(silent) == Engine(cached(cache), VERSION, "cache")


def test_a_damaged_cached_engine_counts_as_none(cache: Path) -> None:
    command(cached(cache), "Exec format error", status=126)
    assert installed_engine() is None


def test_a_cached_engine_that_does_not_run_here_is_none(cache: Path) -> None:
    path = command(cached(cache), f"v{VERSION}")
    assert installed_engine() == Engine(path, VERSION, "cache")
    command(path, "Exec format error", status=126)
    assert installed_engine() is None


def test_a_command_that_is_not_pulumi_has_no_version(tmp_path: Path) -> None:
    assert engine_version(command(tmp_path / "a", "hello")) is None
    assert engine_version(command(tmp_path / "b", "v3.258.0", status=1)) is None
    assert engine_version(tmp_path / "missing") is None


@pytest.mark.usefixtures("closed_network")
def test_a_closed_network_without_an_engine_is_one_line_with_every_remedy(cache: Path) -> None:
    reported: list[Progress] = []
    with pytest.raises(InfraError) as caught:
        find_engine(reported.append)
    assert str(caught.value) == (
        f"Pulumi's engine is not installed (PATH has no `pulumi`, and {cache}/engine has none):"
        f" https://get.pulumi.com/releases/sdk/pulumi-v{VERSION}-linux-x64.tar.gz cannot be"
        " downloaded ([Errno 111] Connection refused); allow HTTPS to get.pulumi.com, or put"
        f" `pulumi` >= {VERSION} on PATH, name it in GPUCTL_PULUMI, or build it with `make engine`"
        " in gpuctl's checkout"
    )
    assert reported[-1].state == "failed"
    assert [path.name for path in (cache / "engine").iterdir()] == ["lock"]


@pytest.mark.usefixtures("closed_network")
def test_the_error_names_an_engine_on_path_that_is_too_old(cache: Path, tmp_path: Path) -> None:
    command(tmp_path / "bin" / "pulumi", "v3.100.0")
    with pytest.raises(InfraError) as caught:
        find_engine(silent)
    assert caught.value.message.startswith(
        f"Pulumi's engine is not installed ({tmp_path}/bin/pulumi is 3.100.0; gpuctl needs >="
        f" {VERSION}): https://get.pulumi.com/"
    )


@pytest.mark.usefixtures("closed_network")
def test_a_machine_that_pulumi_releases_nothing_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(InfraError) as caught:
        find_engine(silent)
    assert str(caught.value).endswith(
        f": gpuctl has no sha256 of pulumi-v{VERSION}-linux-riscv64.tar.gz; put `pulumi` >="
        f" {VERSION} on PATH, name it in GPUCTL_PULUMI, or build it with `make engine` in gpuctl's"
        " checkout"
    )


def filling(
    answer: str = f"v{VERSION}",
    *,
    seconds: float = 0.0,
    fails: bool = False,
    made: list[Path] | None = None,
) -> Callable[[Path, Reporter], None]:
    """A source of engines that takes `seconds`, and leaves half an engine if it fails."""

    def fill(root: Path, report: Reporter) -> None:
        if made is not None:
            made.append(root)
        (root / "bin").mkdir()
        (root / "bin" / "pulumi").write_text("#!/bin/sh\n")
        time.sleep(seconds)
        if fails:
            raise InfraError("go build ended with 1: no space left on device", "free some disk")
        command(root / "bin" / "pulumi", answer)

    return fill


def test_an_installed_engine_is_in_the_cache(cache: Path) -> None:
    reported: list[Progress] = []
    assert install_engine(filling(), reported.append) == Engine(cached(cache), VERSION, "cache")
    assert installed_engine() == Engine(cached(cache), VERSION, "cache")
    assert [(p.stage, p.state) for p in reported] == [("engine", "start"), ("engine", "done")]
    assert reported[-1].seconds is not None


def test_a_failed_installation_leaves_nothing(cache: Path) -> None:
    with pytest.raises(InfraError, match="no space left on device"):
        install_engine(filling(fails=True), silent)
    assert [path.name for path in (cache / "engine").iterdir()] == ["lock"]


def test_an_engine_of_another_version_is_not_kept(cache: Path) -> None:
    with pytest.raises(InfraError, match=r"engine of Pulumi has version 3\.1\.0, not 3"):
        install_engine(filling("v3.1.0"), silent)
    assert not cached(cache).exists()


def test_an_installation_removes_what_a_killed_one_left(cache: Path) -> None:
    (cache / "engine" / ".making-old" / "root").mkdir(parents=True)
    install_engine(filling(), silent)
    assert sorted(p.name for p in (cache / "engine").iterdir()) == ["lock", f"v{VERSION}"]


def test_installations_at_the_same_time_install_once(cache: Path) -> None:
    made: list[Path] = []
    found: list[Engine] = []
    details: list[str] = []
    fill = filling(seconds=0.3, made=made)

    def install() -> None:
        found.append(install_engine(fill, lambda p: details.append(p.detail)))

    threads = [threading.Thread(target=install) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == [Engine(cached(cache), VERSION, "cache")] * 3
    assert details.count("another gpuctl is installing it") == 2


def test_an_unwritable_cache_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    with pytest.raises(InfraError, match=r"^/proc/nowhere/gpuctl/engine cannot be written: "):
        install_engine(filling(), silent)


@pytest.mark.engine
def test_the_real_engine_answers() -> None:
    engine = find_engine(silent)
    assert fits(engine.version)
    assert engine_version(engine.path) == engine.version
