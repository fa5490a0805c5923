"""A machine of the lab: its root plants links where the host's root writes its files."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from config.errors import LabError
from lab.fault_table import HARDWARE, write
from lab.machines import hardware_faults
from lab.machines.root_files import remove_file, write_file
from lab.places import Places


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    """A folder of the host, next to the machine's; it stays as it is."""
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "passwd").write_text("root of the host")
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "passwd": "root of the host"
    }


@pytest.fixture
def root(tmp_path: Path, host: Path) -> Path:
    """The root of a machine."""
    root = tmp_path / "machine" / "root"
    (root / "etc").mkdir(parents=True)
    return root


def test_a_file_is_written_with_its_folders(root: Path) -> None:
    write_file(root, "var/lib/cloud/seed/user-data", b"x", 0o600)
    write_file(root, "var/lib/cloud/seed/user-data", b"y", 0o755)
    file = root / "var/lib/cloud/seed/user-data"
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"y", 0o755)
    assert {path.stat().st_uid for path in (file, *file.parents[:4])} == {root.stat().st_uid}
    remove_file(root, "var/lib/cloud/seed/user-data")
    remove_file(root, "var/lib/cloud/seed/user-data")
    remove_file(root, "no/such/file")
    assert not file.exists()


@pytest.mark.parametrize("up", ["", "../" * 40])
def test_a_link_to_the_host_in_place_of_the_file_is_replaced(
    root: Path, host: Path, up: str
) -> None:
    (root / "etc" / "hosts").symlink_to(f"{up}{host}/passwd")
    write_file(root, "etc/hosts", b"mine")
    assert not (root / "etc" / "hosts").is_symlink()
    assert (root / "etc" / "hosts").read_bytes() == b"mine"


@pytest.mark.parametrize("up", ["", "../" * 40])
def test_a_link_to_the_host_in_place_of_a_folder_stays_in_the_machine(
    root: Path, host: Path, up: str
) -> None:
    (root / "etc").rmdir()
    (root / "etc").symlink_to(f"{up}{host}")
    with pytest.raises(LabError) as refused:
        write_file(root, "etc/passwd", b"hacked")
    assert str(refused.value) == (
        "/etc/passwd of a machine cannot be written: File exists; launch another machine"
    )
    # In the machine that link may lead somewhere: there the file is.
    inside = root / str(host).lstrip("/")
    inside.mkdir(parents=True)
    write_file(root, "etc/passwd", b"the machine's")
    assert (inside / "passwd").read_bytes() == b"the machine's"
    remove_file(root, "etc/passwd")
    assert list(inside.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file above it", "loop", "link of proc"])
def test_what_is_in_the_way_is_one_line(root: Path, kind: str) -> None:
    (root / "etc").rmdir()
    if kind == "folder":
        (root / "etc" / "hosts").mkdir(parents=True)
        reason = "Is a directory"
    elif kind == "file above it":
        (root / "etc").write_text("")
        reason = "Not a directory"
    elif kind == "loop":
        (root / "etc").symlink_to("etc")
        reason = "Too many levels of symbolic links"
    else:
        (root / "etc").symlink_to("proc/self/root")
        (root / "proc" / "self").mkdir(parents=True)
        (root / "proc" / "self" / "root").symlink_to("/nowhere")
        reason = "File exists"
    with pytest.raises(LabError) as refused:
        write_file(root, "etc/hosts", b"x")
    assert str(refused.value) == (
        f"/etc/hosts of a machine cannot be written: {reason}; launch another machine"
    )


def test_a_hard_link_to_a_file_of_the_host_is_not_written_through(root: Path, host: Path) -> None:
    os.link(host / "passwd", root / "etc" / "hosts")
    write_file(root, "etc/hosts", b"mine")
    assert (root / "etc" / "hosts").read_bytes() == b"mine"


def test_folders_that_become_links_while_the_host_writes(root: Path, host: Path) -> None:
    """The machine swaps a folder and a link to the host as fast as it can."""
    (root / "etc").rmdir()
    (root / "real").mkdir()
    (root / "link").symlink_to(host)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for name in ("real", "link"):
                with suppress(OSError):  # the host has just made its folder
                    (root / name).rename(root / "etc")
                    (root / "etc").rename(root / name)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(300):
            try:
                write_file(root, "etc/shadow", b"x")
            except LabError:
                continue  # the machine was in the way
    finally:
        done.set()
        swapping.join()
    # The fixture looks at the host's folder.


def test_a_fault_of_hardware_is_written_in_the_machine_alone(tmp_path: Path, host: Path) -> None:
    places = Places("security", tmp_path)
    places.runtime.mkdir(parents=True)
    write(places.faults, {HARDWARE: ("launched:x", "xid=79")})
    root = tmp_path / "root"
    (root / "usr" / "local").mkdir(parents=True)
    (root / "etc").symlink_to(host)
    (root / "usr" / "local" / "bin").symlink_to(host)
    (root / str(host).lstrip("/")).mkdir(parents=True)
    hardware_faults.show_at_launch(places, root, "x")
    inside = root / str(host).lstrip("/")
    assert sorted(path.name for path in inside.iterdir()) == ["dmesg", "gpuctl-lab"]
