import os
import sys
from pathlib import Path

import pytest

from lab import prerequisites
from lab.machines import cgroups
from lab.network import bridge
from lab.prerequisites import Prerequisite


@pytest.fixture(autouse=True)
def everything_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with all that the lab needs, whatever this one has."""
    for tool in prerequisites._TOOLS:
        (tmp_path / tool).write_text("#!/bin/sh\necho 'systemd 252 (252.39)'\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setattr(prerequisites, "SEARCH_PATH", str(tmp_path))
    monkeypatch.setattr(prerequisites, "_KEYRING", tmp_path)
    monkeypatch.setattr(prerequisites, "_effective_capabilities", lambda: ~0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(bridge, "resolvers", lambda: ("192.0.2.53",))
    monkeypatch.setattr(cgroups, "hierarchies", lambda: (tmp_path,))
    return tmp_path


def test_nothing_is_missing_where_all_is_there() -> None:
    assert prerequisites.missing() == ()


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
def test_a_missing_tool_names_its_package(
    everything_is_there: Path, tool: str, package: str
) -> None:
    (everything_is_there / tool).unlink()
    assert prerequisites.missing() == (
        Prerequisite(tool, "not found", f"apt-get install -y {package}"),
    )


def test_an_installation_without_moto_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "find_spec", lambda _name: None)
    assert prerequisites.missing() == (
        Prerequisite(
            "moto",
            "not installed",
            "install gpuctl with its extra `lab`: uv tool install --force '.[lab]' in its checkout",
        ),
    )


def test_root_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (complaint,) = prerequisites.missing()
    assert complaint == Prerequisite(
        "root", "the lab boots machines, which takes root", "run it with sudo"
    )


def test_a_containers_root_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "_effective_capabilities", lambda: 0xA80425FB)  # Docker's
    (complaint,) = prerequisites.missing()
    assert complaint.problem == "this root lacks CAP_NET_ADMIN, CAP_SYS_ADMIN"


def test_an_old_nspawn_is_named(everything_is_there: Path) -> None:
    (everything_is_there / "systemd-nspawn").write_text("#!/bin/sh\necho 'systemd 249 (249.11)'\n")
    (complaint,) = prerequisites.missing()
    assert complaint.problem == "version 249, at least 250 is needed"


def test_other_systems_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert prerequisites.missing() == (
        Prerequisite("Linux", "this is darwin", "use the lab on a Linux machine"),
    )


def test_a_resolver_on_loopback_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "resolvers", tuple)
    (complaint,) = prerequisites.missing()
    assert complaint.name == "DNS"
    assert complaint.remedy == "put a nameserver that others can ask into /etc/resolv.conf"
