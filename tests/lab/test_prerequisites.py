from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import LabError
from config.progress import silent
from lab import lifecycle, prerequisites
from lab.places import Places
from lab.prerequisites import Host, Prerequisite, missing, require


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    for tool in prerequisites._TOOLS:
        (tmp_path / tool).write_text("#!/bin/sh\necho 'systemd 252 (252.39)'\n")
        (tmp_path / tool).chmod(0o755)
    return tmp_path


@pytest.fixture
def host(tools: Path) -> Host:
    """A host with all that the lab needs."""
    return Host("linux", 0, ~0, True, str(tools), tools, True, ("192.0.2.53",))


def test_nothing_is_missing_where_all_is_there(host: Host) -> None:
    assert missing(host) == ()


@pytest.mark.parametrize(
    ("tool", "package"),
    [
        ("mmdebstrap", "mmdebstrap"),
        ("systemd-nspawn", "systemd-container"),
        ("ip", "iproute2"),
        ("nft", "nftables"),
        ("ssh", "openssh-client"),
    ],
)
def test_a_missing_tool_names_its_package(host: Host, tools: Path, tool: str, package: str) -> None:
    (tools / tool).unlink()
    assert missing(host) == (Prerequisite(tool, "not found", f"apt-get install -y {package}"),)


def test_what_is_missing_is_said_in_one_line(host: Host, tools: Path) -> None:
    for tool in ("nft", "ip"):
        (tools / tool).unlink()
    with pytest.raises(LabError) as caught:
        require("the lab cannot start", host)
    assert str(caught.value) == (
        "the lab cannot start: ip: not found, nft: not found;"
        " apt-get install -y iproute2; apt-get install -y nftables"
    )


def test_a_lab_does_not_start_without_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match=r"^the lab cannot start: .*systemd-nspawn: not found"):
        lifecycle.start(Places("b", tmp_path), silent)


def test_an_installation_without_moto_names_the_extra(host: Host) -> None:
    assert missing(replace(host, has_moto=False)) == (
        Prerequisite(
            "moto",
            "not installed",
            "install gpuctl with its extra `lab`: uv tool install --force '.[lab]' in its checkout",
        ),
    )


def test_root_is_needed(host: Host) -> None:
    (complaint,) = missing(replace(host, user=1000))
    assert complaint == Prerequisite(
        "root", "the lab boots machines, which takes root", "run it with sudo"
    )


def test_a_containers_root_is_not_enough(host: Host) -> None:
    (complaint,) = missing(replace(host, capabilities=0xA80425FB))  # Docker's
    assert complaint.problem == "this root lacks CAP_NET_ADMIN, CAP_SYS_ADMIN"


def test_an_old_nspawn_is_named(host: Host, tools: Path) -> None:
    (tools / "systemd-nspawn").write_text("#!/bin/sh\necho 'systemd 249 (249.11)'\n")
    (complaint,) = missing(host)
    assert complaint.problem == "version 249, at least 250 is needed"


def test_other_systems_are_told_at_once(host: Host) -> None:
    assert missing(replace(host, platform="darwin", user=1000)) == (
        Prerequisite("Linux", "this is darwin", "use the lab on a Linux machine"),
    )


def test_a_resolver_on_loopback_alone_is_named(host: Host) -> None:
    (complaint,) = missing(replace(host, resolvers=()))
    assert complaint.name == "DNS"
    assert complaint.remedy == "put a nameserver that others can ask into /etc/resolv.conf"
