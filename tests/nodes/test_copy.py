"""Files and folders between this machine and nodes (sshd on loopback)."""

import asyncio
import stat
from pathlib import Path

import pytest

from nodes.copy import copy_from, copy_to
from nodes.ssh import connect
from tests.nodes.conftest import Site

pytestmark = pytest.mark.slow


def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "in ner").mkdir(parents=True)
    (folder / "in ner" / "ü'x").write_text("text")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    return folder


def test_a_folder_goes_to_a_new_name_or_into_a_folder_that_exists(
    site: Site, tmp_path: Path
) -> None:
    node, source = site.inventory.nodes[0], mine(tmp_path)
    target = tmp_path / "there" / "new name"
    for _ in range(2):  # the second copy goes into the folder that the first one made
        done = asyncio.run(copy_to(site.inventory, [node], source, str(target)))
        assert done == {0: None}
    for copy in (target, target / "mine"):
        assert (copy / "in ner" / "ü'x").read_text() == "text"
        assert (copy / "run.sh").stat().st_mode & stat.S_IXUSR
        assert (copy / "link").readlink() == Path("run.sh")
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["new name"]


def test_a_file_replaces_a_file(site: Site, tmp_path: Path) -> None:
    node = site.inventory.nodes[0]
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old and longer")
    asyncio.run(copy_to(site.inventory, [node], tmp_path / "a", str(tmp_path / "b")))
    assert (tmp_path / "b").read_text() == "new"


def test_copies_of_several_nodes_are_in_their_folders(site: Site, tmp_path: Path) -> None:
    source, to = mine(tmp_path), tmp_path / "back"
    nodes = site.inventory.nodes
    assert asyncio.run(copy_from(site.inventory, nodes, str(source), str(to))) == {0: None, 1: None}
    for name in ("node0", "node1"):
        assert (to / name / "mine" / "in ner" / "ü'x").read_text() == "text"
    asyncio.run(copy_from(site.inventory, nodes[:1], f"{source}/run.sh", str(tmp_path / "one")))
    assert (tmp_path / "one").read_text() == "#!/bin/sh\n"


def test_what_fails_says_why_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    node = site.inventory.nodes[0]
    (tmp_path / "here").mkdir()
    to = str(tmp_path / "here" / "x")
    (error,) = asyncio.run(copy_from(site.inventory, [node], "/nothing", to)).values()
    assert error is not None
    assert error.message == "node0 (127.0.0.1): /nothing does not exist"
    assert list((tmp_path / "here").iterdir()) == []
    (tmp_path / "file").write_text("")
    (error,) = asyncio.run(
        copy_to(site.inventory, [node], tmp_path / "file", str(tmp_path / "file" / "x"))
    ).values()
    assert error is not None
    assert "Not a directory" in error.message or "File exists" in error.message


def test_a_line_of_megabytes_is_one_line(site: Site) -> None:
    async def talk() -> tuple[bytes, bytes, bytes]:
        async with (
            connect(site.inventory) as connections,
            connections.converse(site.inventory.nodes[0], "cat; echo end") as talk,
        ):
            await talk.write(b"x" * (5 << 20) + b"\nrest\n")
            talk.end_input()
            return await talk.line(), await talk.read(4), await talk.line()

    long, rest, empty = asyncio.run(asyncio.wait_for(talk(), 60))
    assert (len(long), rest, empty) == ((5 << 20) + 1, b"rest", b"\n")
