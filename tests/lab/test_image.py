import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from config.progress import Progress, silent
from lab.images import image, image_files, image_recipes
from lab.machines import user_namespaces


def make(path: Path, *_: object) -> None:
    """Make an image in no time."""
    path.mkdir()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    image.image_path.cache_clear()
    yield tmp_path / "gpuctl/lab"
    image.image_path.cache_clear()


def test_an_image_is_built_once(cache: Path) -> None:
    seen: list[Progress] = []
    path = image.ensure_image("stock", seen.append, make)
    assert path.parent == cache
    assert path.name.startswith("stock-")
    assert [(p.stage, p.subject, p.state) for p in seen] == [
        ("image", "stock", "start"),
        ("image", "stock", "done"),
    ]
    assert image.ensure_image("stock", seen.append, make) == path
    assert len(seen) == 2


def test_former_recipes_and_interrupted_builds_go(cache: Path) -> None:
    for name in ("stock-000000000000", "partial-stock-000000000000", "dlami-000000000000"):
        (cache / name).mkdir(parents=True)
    path = image.ensure_image("stock", silent, make)
    assert {p.name for p in cache.iterdir()} == {path.name, "dlami-000000000000", "lock"}


def test_the_former_image_of_a_machine_that_runs_stays(cache: Path) -> None:
    former, machine = cache / "stock-000000000000", cache.parent / "machine"
    former.mkdir(parents=True)
    machine.mkdir()
    user_namespaces.mount_shifted(former, machine, 65536 * 9)
    try:
        image.ensure_image("stock", silent, make)
        assert former.exists()
    finally:
        subprocess.run(["umount", machine], check=True)


def test_an_image_is_made_after_the_one_that_it_is_based_on(cache: Path) -> None:
    seen: list[Progress] = []
    image.ensure_image("frameworks", seen.append, make)
    assert [(p.subject, p.detail) for p in seen if p.state == "start"] == [
        ("stock", "about a minute, kept for the next time"),
        ("dlami", "about a minute, kept for the next time"),
        ("frameworks", "about six minutes and 3 GB, kept for the next time"),
    ]


def test_a_build_at_work_is_not_called_interrupted(cache: Path) -> None:
    (cache / "partial-stock-1").mkdir(parents=True)
    with image._alone():
        assert image.interrupted() == ()
    assert [p.name for p in image.interrupted()] == ["partial-stock-1"]


def test_one_process_at_a_time_makes_images_and_others_say_that_they_wait(cache: Path) -> None:
    waits, seen = Event(), list[str]()

    def report(progress: Progress) -> None:
        seen.append(progress.detail)
        waits.set()

    with ThreadPoolExecutor() as other:
        with image._alone():
            made = other.submit(image.ensure_image, "stock", report, make)
            assert waits.wait(60)
            assert seen == ["waiting for another process that makes images"]
            image.image_path("stock").mkdir()  # which it has made meanwhile
        assert made.result(60) == image.image_path("stock")
    assert len(seen) == 1


def test_a_change_of_the_program_changes_both_images() -> None:
    for flavour in image.OF_THE_LAB:
        assert image_recipes.SOURCE.read_text() in image._recipe(flavour)


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make apt-get and apt-config of the host a script."""

    def write(script: str) -> None:
        for name in ("apt-get", "apt-config"):
            (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
            (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return write


def test_the_hosts_mirror_is_used(apt: Callable[[str], None], tmp_path: Path) -> None:
    listed = (
        "http://mirror.example/debian/ bookworm main\n"
        "https://download.docker.com/linux/debian/ bookworm stable\n"
        "http://apt.postgresql.org/pub/repos/apt/ bookworm-pgdg main\n"
    )
    apt(f"echo \"$@\" >> {tmp_path}/asked; cat <<'END'\n{listed}END")
    assert image_files._host_sources() == (
        "Types: deb\nURIs: http://mirror.example/debian/\nSuites: bookworm\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    assert image_files.source_of("trixie") == image_files._host_sources().replace(
        "bookworm", "trixie"
    )
    # every command of the lab asks: reading all lists of packages would take half a second
    assert "--option=Dir::State::lists=/dev/null" in (tmp_path / "asked").read_text()


def test_the_public_mirror_is_used_on_other_distributions(apt: Callable[[str], None]) -> None:
    apt("exit 1")
    assert image_files._host_sources().count("URIs: http://deb.debian.org/") == 3


def test_the_hosts_way_to_fetch_is_used(apt: Callable[[str], None]) -> None:
    dumped = (
        'APT "";\nAcquire::cdrom "";\nAcquire::http::Proxy "http://192.0.2.1:3128";\n'
        'Acquire::Check-Valid-Until "false";\nDPkg::Post-Invoke:: "rm -rf";\n'
    )
    apt(f"cat <<'END'\n{dumped}END")
    assert image_files._host_apt_settings() == (
        'Acquire::http::Proxy "http://192.0.2.1:3128";\nAcquire::Check-Valid-Until "false";\n'
    )


@pytest.mark.lab
@pytest.mark.parametrize("flavour", ["stock", "dlami"])
def test_an_image_has_no_identity_and_what_its_flavour_promises(flavour: image.Flavour) -> None:
    root = image.ensure_image(flavour, silent)
    assert (root / "etc/machine-id").read_text() == ""
    assert list((root / "etc/ssh").glob("ssh_host_*")) == []
    assert not (root / "etc/hostname").exists()
    assert (root / "usr/bin/cloud-init").exists()
    # one process for all stages, of a release that the machine's apt does not know
    unit = root / "lib/systemd/system/cloud-init-main.service"
    assert "ExecStart=/usr/bin/cloud-init --all-stages\n" in unit.read_text()
    apt = [path for path in (root / "etc/apt").rglob("*") if path.is_file()]
    assert [path.name for path in apt if "trixie" in path.read_text(errors="replace")] == []
    assert not (root / "usr/bin/gcc").exists()
    assert list((root / "usr/lib/python3/dist-packages/cloudinit").glob("__pycache__/stages.*"))
    assert (root / "usr/src/nccl-tests/Makefile").exists()
    assert (root / "usr/bin/nvidia-smi").exists() == (flavour == "dlami")
    tests = root / "root/nccl-tests/build"
    assert tests.exists() == (flavour == "dlami")
    assert (root / "usr/bin/mpirun").is_symlink() == (flavour == "dlami")
    if flavour == "dlami":
        assert sorted(path.name for path in tests.iterdir()) == sorted(image_recipes.TEST_NAMES)
