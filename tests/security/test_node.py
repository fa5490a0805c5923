"""What a node sends: a job is root there, so paths, links, modes and sizes are hostile.

`gpuctl cp` from a node is tried with archives that tar does not make, and with folders that a node
may have. `tests/engine/session/test_outputs.py` has the outputs of runs.
"""

import asyncio
import copy
import io
import os
import shlex
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cli.render.tables import csv_text
from config.errors import NodeError
from engine.record.result import Table
from nodes.arrivals import Arrivals, leads_out, unpack
from nodes.copy import copy_from
from nodes.inventory import Inventory
from nodes.openssh import hosts_text, openssh_config
from tests.nodes.conftest import Site
from tests.nodes.conftest import site as site  # noqa: PLC0414  a fixture

Change = Callable[[tarfile.TarInfo], None]


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.size, made.mode = len(content), 0o644
    for field, value in fields.items():
        setattr(made, field, value)
    return made, content


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.DIRTYPE, mode=0o755)


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


def archive(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as made:
        for info, content in entries:
            made.addfile(info, io.BytesIO(content))
    stream.seek(0)
    return stream


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """The place of this machine at which the copy arrives; nothing else may change."""
    (tmp_path / "outside").write_text("mine")
    return tmp_path / "copy"


def arrive(top: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> list[str]:
    arrivals = Arrivals(top)
    assert unpack(archive(*entries), arrivals, "node0")
    return arrivals.refused


def tree(top: Path) -> list[str]:
    assert (top.parent / "outside").read_text() == "mine"
    assert sorted(path.name for path in top.parent.iterdir()) in (["outside"], ["copy", "outside"])
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def test_the_client_decides_the_name(top: Path) -> None:
    assert arrive(top, folder("authorized_keys"), entry("authorized_keys/a", b"x")) == []
    assert tree(top) == ["a"]
    assert (top / "a").read_bytes() == b"x"


@pytest.mark.parametrize(
    "name", ["/etc/cron.d/x", "../outside", "d/../../outside", "..", "other", "other/x"]
)
def test_a_path_that_was_not_asked_for_ends_the_copy(top: Path, name: str) -> None:
    with pytest.raises(NodeError) as refused:
        arrive(top, folder("d"), entry(name, b"x"))
    assert refused.value.message == f"node0 sent {name}, which was not asked for"
    assert tree(top) == []


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (link("d/evil", "/etc/passwd"), "evil (a link to /etc/passwd, which is outside)"),
        (link("d/evil", "../outside"), "evil (a link to ../outside, which is outside)"),
        (link("d/evil", "a/../../outside"), "evil (a link to a/../../outside, which is outside)"),
        (
            link("d/evil", "x\n\x1b[31m/../y"),
            r"evil (a link to 'x\n\x1b[31m/../y', which is outside)",
        ),
        (
            entry("d/evil", type=tarfile.LNKTYPE, linkname="d/nothing"),
            "evil (a link to a file that was not sent)",
        ),
        (
            entry("d/evil", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
            "evil (neither a file nor a folder)",
        ),
        (
            entry("d/evil", type=tarfile.BLKTYPE, devmajor=8, devminor=0),
            "evil (neither a file nor a folder)",
        ),
        (entry("d/evil", type=tarfile.FIFOTYPE), "evil (neither a file nor a folder)"),
        (entry("d/evil", b"x", mode=0o4755), "evil (its set-uid or set-gid bit is set)"),
        (entry("d/evil", b"x", mode=0o2755), "evil (its set-uid or set-gid bit is set)"),
    ],
)
def test_what_is_refused_is_named_and_everything_else_arrives(
    top: Path, hostile: tuple[tarfile.TarInfo, bytes], reason: str
) -> None:
    assert arrive(top, folder("d"), hostile, entry("d/good", b"x")) == [reason]
    assert tree(top) == ["good"]


@pytest.mark.parametrize("target", ["/etc/passwd", "d/../../outside"])
def test_a_hard_link_to_a_file_of_this_machine_ends_the_copy(top: Path, target: str) -> None:
    with pytest.raises(NodeError) as refused:
        arrive(top, folder("d"), entry("d/evil", type=tarfile.LNKTYPE, linkname=target))
    assert refused.value.message == f"node0 sent {target}, which was not asked for"
    assert tree(top) == []


def test_no_file_is_written_through_a_link(top: Path) -> None:
    """A link is made last: then its place is taken by what was sent below it."""
    with pytest.raises(FileExistsError):
        arrive(top, folder("d"), link("d/l", "sub"), folder("d/sub"), entry("d/l/evil", b"x"))
    assert tree(top) == ["l", "l/evil", "sub"]


def test_links_that_together_lead_out_are_refused(top: Path) -> None:
    """Each target alone is inside: `x/b` is the top, so `x/b/..` is above it."""
    refused = arrive(
        top, folder("d"), folder("d/x"), link("d/x/b", ".."), link("d/evil", "x/b/../outside")
    )
    assert refused == ["evil (a link to x/b/../outside, which is outside)"]
    assert tree(top) == ["x", "x/b"]


def test_links_below_a_link_are_refused(top: Path) -> None:
    refused = arrive(
        top,
        folder("d"),
        folder("d/a"),
        folder("d/a/b"),
        link("d/a/b/up", "../.."),
        link("d/a/b/up/evil", "../../.."),
    )
    assert refused == ["a/b/up/evil (its folder is a link)"]
    assert tree(top) == ["a", "a/b", "a/b/up"]


@pytest.mark.parametrize(
    ("path", "target", "out"),
    [
        ("a", "b", False),
        ("a", "..", True),
        ("a", "/", True),
        ("x/a", "..", False),
        ("x/a", "../b/c", False),
        ("x/a", "../..", True),
        ("x/a", "b/..", True),
        ("x/a", "./../b", False),
    ],
)
def test_a_link_leads_out_as_far_as_its_text_says(path: str, target: str, out: bool) -> None:
    assert leads_out(PurePosixPath(path), target) is out


def test_files_that_a_name_is_sent_for_twice_end_the_copy(top: Path) -> None:
    with pytest.raises(FileExistsError):
        arrive(top, folder("d"), entry("d/a", b"1"), entry("d/a", b"2"))
    assert (top / "a").read_bytes() == b"1"


def test_modes_and_times_are_no_more_than_a_user_s_own(top: Path) -> None:
    umask = os.umask(0o022)
    try:
        made = entry("d/a", b"x", mode=0o1777, mtime=1_000_000_000, uid=0, uname="root")
        odd = entry("d/b", b"x", mode=0o000, mtime=-(1 << 50))
        assert arrive(top, folder("d"), made, odd) == []
    finally:
        os.umask(umask)
    found = (top / "a").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime) == (0o755, 1_000_000_000)
    assert found.st_uid == os.getuid()
    assert stat.S_IMODE((top / "b").stat().st_mode) == 0o600


def huge_name() -> io.BytesIO:
    """A header that says that a name of 8 GiB follows."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 8 << 30
    return io.BytesIO(info.tobuf(tarfile.GNU_FORMAT) + b"x" * (4 << 20))


def huge_attributes() -> io.BytesIO:
    """Attributes of 8 GiB, of which some come (pax)."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    return io.BytesIO(info.tobuf(tarfile.PAX_FORMAT) + b"x" * (4 << 20))


def nested_attributes() -> io.BytesIO:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 0
    return io.BytesIO(info.tobuf(tarfile.PAX_FORMAT) * 5000)


@pytest.mark.parametrize("hostile", [huge_name, huge_attributes, nested_attributes])
def test_headers_do_not_fill_the_memory(top: Path, hostile: Callable[[], io.BytesIO]) -> None:
    stream = hostile()
    with pytest.raises(NodeError) as refused:
        unpack(stream, Arrivals(top), "node0")
    assert refused.value.message.startswith("node0 sent no archive that can be read: ")
    assert stream.tell() <= (1 << 20) + (1 << 18) + 512
    assert tree(top) == []


def test_a_sparse_file_does_not_fill_the_disk(top: Path) -> None:
    """8 EiB of zeros in one header (GNU.sparse of pax)."""
    info, content = entry("d/evil", b"1\n0\n0\n".ljust(512, b"\0"))
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "d/evil",
        "GNU.sparse.realsize": str(1 << 62),
    }
    arrivals = Arrivals(top)
    stream = archive(folder("d"), (info, content), form=tarfile.PAX_FORMAT)
    assert unpack(stream, arrivals, "node0")
    assert arrivals.refused == ["evil (neither a file nor a folder)"]
    assert tree(top) == []


@pytest.mark.parametrize("content", [b"not tar at all" * 100, b"\xff" * 1024, b"x"])
def test_a_stream_that_is_no_archive_is_refused(top: Path, content: bytes) -> None:
    with pytest.raises(NodeError, match=r"^node0 sent no archive that can be read: "):
        unpack(io.BytesIO(content), Arrivals(top), "node0")
    assert tree(top) == []


def test_a_copy_from_a_real_node_names_what_it_leaves_out(site: Site, tmp_path: Path) -> None:
    source = tmp_path / "job" / "out"
    source.mkdir(parents=True)
    (source / "model").write_bytes(b"weights")
    (source / "newest").symlink_to("model")
    (source / "keys").symlink_to("/root/.ssh")
    os.mkfifo(source / "pipe")
    (source / "sudo").write_text("x")
    (source / "sudo").chmod(0o4755)
    os.link(source / "model", source / "same")
    to = tmp_path / "to"
    (error,) = asyncio.run(
        copy_from(site.inventory, site.inventory.nodes[:1], str(source), str(to))
    ).values()
    assert error is not None
    first, _, rest = error.message.partition(": not copied: ")
    assert first == "node0"
    assert sorted(rest.split(", ")) == [
        "keys (a link to /root/.ssh",
        "pipe (neither a file nor a folder)",
        "sudo (its set-uid or set-gid bit is set)",
        "which is outside)",
    ]
    assert error.hint == "everything else was copied"
    assert sorted(path.name for path in to.iterdir()) == ["model", "newest", "same"]
    assert (to / "newest").read_bytes() == (to / "same").read_bytes() == b"weights"
    assert sorted(path.name for path in tmp_path.iterdir() if "gpuctl-cp" in path.name) == []


def test_a_link_of_mine_in_the_target_is_not_followed(site: Site, tmp_path: Path) -> None:
    """A node may know which links are in the folder that a copy is merged into."""
    source = tmp_path / "node" / "out"
    (source / "data").mkdir(parents=True)
    (source / "data" / "evil").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine" / "out").mkdir(parents=True)
    (tmp_path / "mine" / "out" / "data").symlink_to(tmp_path / "elsewhere")
    node = site.inventory.nodes[0]
    mine = tmp_path / "mine"
    (error,) = asyncio.run(copy_from(site.inventory, [node], str(source), str(mine))).values()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert error is not None
    assert error.message == f"{mine} cannot be written: Not a directory"


def test_a_link_that_is_named_is_copied_as_what_it_leads_to(site: Site, tmp_path: Path) -> None:
    (tmp_path / "model-7").write_text("weights")
    (tmp_path / "newest").symlink_to("model-7")
    node = site.inventory.nodes[0]
    source, to = f"{tmp_path}/newest", f"{tmp_path}/here/"
    assert asyncio.run(copy_from(site.inventory, [node], source, to)) == {0: None}
    assert (tmp_path / "here" / "newest").read_text() == "weights"


@pytest.mark.parametrize(
    ("written", "cell"),
    [
        ("=HYPERLINK(1)", '"\'=HYPERLINK(1)"'),
        ("+1", '"\'+1"'),
        ("-2+3", '"\'-2+3"'),
        ("@SUM(A1)", '"\'@SUM(A1)"'),
        ("\t=1", '"\'\t=1"'),
        ("\r=1", '"\'\r=1"'),
        ("\uff1d1+1", '"\'\uff1d1+1"'),
        ('=1+2";=1+2', '"\'=1+2"";=1+2"'),
        ("x;=1+2", '"x;=1+2"'),
        ('x"', '"x"""'),
        ("ring", "ring"),
    ],
)
def test_a_cell_of_csv_is_no_formula(written: str, cell: str) -> None:
    """nccl-tests' tables are what a job prints."""
    table = Table.model_validate(
        {
            "facts": {"rank": 0, "collective": written},
            "rows": [
                {
                    "size": 8,
                    "count": 2,
                    "dtype": "float",
                    "redop": None,
                    "root": -1,
                    "out_of_place": {"time_us": -1.5, "algbw": 2.0, "busbw": 2.0, "wrong": 0},
                    "in_place": None,
                }
            ],
        }
    )
    line = csv_text("job-000001", [table]).partition("\n")[2]
    assert cell in line
    assert "'-1.5" not in line
    assert table.model_dump(mode="json")["facts"]["collective"] == written  # as `--json` prints it


INVENTORY: dict[str, Any] = {
    "cluster": "demo",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instance_type": "p4d.24xlarge",
    "user": "root",
    "bastion": {"instance_id": "i-0", "address": "198.18.0.9", "user": "gpuctl", "port": 22},
    "nodes": [
        {
            "rank": rank,
            "name": f"node{rank}",
            "instance_id": f"i-{rank + 1}",
            "private_ip": f"10.0.0.{rank + 4}",
            "gpus": 8,
            "slots": 8,
        }
        for rank in range(2)
    ],
    "folder": "/nowhere/clusters/demo",
}
HOSTILE_TEXTS = (
    "x\n  ProxyCommand touch /tmp/evil",
    "x\r  LocalCommand touch /tmp/evil",
    "x ProxyCommand=evil",
    "-oProxyCommand=evil",
    "$(touch /tmp/evil)",
    "%h",
    "`x`",
    "../../x",
    '"',
    "*",
    "\u2028ProxyCommand x",
    "\u0661",
    "a" * 300,
)
HOSTILE_PLACES = (
    ("cluster",),
    ("user",),
    ("zone",),
    ("region",),
    ("instance_type",),
    ("bastion", "address"),
    ("bastion", "user"),
    ("bastion", "instance_id"),
    ("nodes", 0, "name"),
    ("nodes", 1, "private_ip"),
    ("nodes", 1, "public_ip"),
    ("nodes", 1, "instance_id"),
    ("nodes", 1, "interface"),
    ("shared",),
)


def inventory_with(place: tuple[str | int, ...], value: object) -> dict[str, Any]:
    made = copy.deepcopy(INVENTORY)
    above: Any = made
    for part in place[:-1]:
        above = above[part]
    above[place[-1]] = value
    return made


@pytest.mark.parametrize("place", HOSTILE_PLACES, ids=lambda place: ".".join(map(str, place)))
@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_an_inventory_has_no_text_that_ssh_or_a_shell_reads_as_more(
    place: tuple[str | int, ...], text: str
) -> None:
    with pytest.raises(ValidationError):
        Inventory.model_validate(inventory_with(place, text))


@pytest.mark.parametrize("port", [0, -1, 65536, "22\n  ProxyCommand x"])
def test_a_port_is_a_port(port: object) -> None:
    for place in (("nodes", 0, "port"), ("bastion", "port")):
        with pytest.raises(ValidationError):
            Inventory.model_validate(inventory_with(place, port))


@pytest.mark.parametrize("name", ["node1", "bastion"])
def test_two_machines_with_one_name_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=r"two machines have one name: "):
        Inventory.model_validate(inventory_with(("nodes", 0, "name"), name))


SAFE = st.sampled_from(("node7", "Node-8", "9x"))
ADDRESSES = st.sampled_from(("10.0.0.7", "fd00::7", "ip-10-0-0-7.ec2.internal", "::1"))
USERS = st.sampled_from(("root", "ubuntu", "ec2-user", "_x"))


@given(SAFE, ADDRESSES, USERS, st.integers(1, 65535), st.booleans())
@settings(max_examples=8)
def test_ssh_reads_back_what_was_written(
    name: str, address: str, user: str, port: int, has_proxy: bool
) -> None:
    """`ssh -G` prints the settings that it will use for a host."""
    made = inventory_with(("nodes", 0, "name"), name)
    made["nodes"][0] |= {"private_ip": address, "port": port}
    made["user"] = user
    made["proxy"] = ["/opt/my python/bin", "100%", "$x;y"] if has_proxy else []
    inventory = Inventory.model_validate(made)
    config = shlex.quote(str(inventory.folder / "ssh_config"))
    through_bastion = f"ssh -F {config} -W '[%h]:%p' bastion"
    for text, host, jump, command in (
        (openssh_config(inventory), name, "", through_bastion),
        (hosts_text(inventory), f"demo-{name}", "demo-bastion", ""),
    ):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(text)
            file.flush()
            done = subprocess.run(
                ["ssh", "-F", file.name, "-G", host], capture_output=True, text=True, check=True
            )
        read = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
        assert (read["hostname"], read["user"], read["port"]) == (address, user, str(port))
        proxy = "'/opt/my python/bin' 100%% '$x;y' i-1"
        assert read.get("proxyjump", "") == ("" if has_proxy else jump)
        assert read.get("proxycommand", "") == (proxy if has_proxy else command)
        assert "localcommand" not in read
        assert read["permitlocalcommand"] == "no"
