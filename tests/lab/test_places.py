"""Names of labs, and what follows from them: nothing that two labs share."""

import os
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path

import pytest

from config.errors import InputError, LabError
from lab import places, state
from lab.network import slots
from lab.network.slots import Slot
from lab.places import DEFAULT, Places


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine that no lab was ever on."""
    (tmp_path / "run").mkdir()
    return tmp_path


def test_the_default_lab_has_the_places_that_it_always_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    lab, slot = Places(DEFAULT), Slot(0)
    assert (lab.runtime, lab.changing) == (Path("/run/gpuctl-lab"), Path("/run/gpuctl-lab.lock"))
    assert lab.machines == Path("/var/lib/gpuctl-lab/machines")
    assert lab.file_systems == Path("/var/lib/gpuctl-lab/file-systems")
    assert {lab.namespace, lab.cgroup, lab.table} == {"gpuctl-lab"}
    assert lab.state == Path("/state/gpuctl/lab")
    assert slot.host_link == "gpuctl-lab0"
    assert (slot.host_address, slot.inside_address) == ("198.18.255.1", "198.18.255.2")
    assert slot.public_range == IPv4Network("198.18.0.0/17")
    assert (slot.route_protocol, slot.metric) == ("218", "0")


def test_no_two_labs_share_a_place() -> None:
    a, b, default = Places("a"), Places("b"), Places(DEFAULT)
    for one, other in combinations((a, b, default), 2):
        for name in ("runtime", "changing", "machines", "file_systems", "state"):
            assert getattr(one, name) != getattr(other, name)
            assert getattr(one, name) not in getattr(other, name).parents
        assert {one.namespace, one.cgroup, one.table}.isdisjoint(
            {other.namespace, other.cgroup, other.table}
        )


def test_no_two_slots_share_an_address_or_a_number() -> None:
    every = [Slot(number) for number in range(17)]
    for one, other in combinations(every, 2):
        assert not one.range.overlaps(other.range)
    for slot in every:
        assert slot.range.subnet_of(slots.EVERY_LAB)
        assert slot.public_range.subnet_of(slot.range)
        link = IPv4Network(f"{slot.host_address}/30", strict=False)
        assert link.subnet_of(slot.range)
        assert not link.overlaps(slot.public_range)
    for name in ("host_link", "route_protocol", "metric"):
        assert len({getattr(slot, name) for slot in every}) == 17
    assert {slot.route_protocol for slot in every} == set(slots.PROTOCOLS)


@pytest.mark.parametrize("name", ["", "B", "a b", "../b", "-b", "b-", "a_b", "b" * 17, "b\n"])
def test_a_name_that_no_lab_can_have(name: str) -> None:
    with pytest.raises(InputError) as caught:
        Places(name)
    assert str(caught.value) == (
        f"'{name}' is no name for a lab; use 1 to 16 lower-case letters, digits and dashes, as in"
        " `--lab-name b`; begin and end with a letter or digit"
    )


def test_a_slot_is_a_labs_own_until_it_is_released(root: Path) -> None:
    a, b, default = Places("a", root), Places("b", root), Places(DEFAULT, root)
    assert slots.held(a) is None
    assert slots.held(default) == slots.take(default) == Slot(0)
    assert (slots.take(a), slots.take(b), slots.take(a)) == (Slot(1), Slot(2), Slot(1))
    slots.release(a)
    assert slots.held(a) is None
    assert slots.take(Places("c", root)) == Slot(1)
    assert [lab.name for lab in places.everywhere(root)] == [DEFAULT, "a", "b", "c"]


def test_more_labs_than_addresses_are_refused(root: Path) -> None:
    for number in range(16):
        slots.take(Places(f"lab{number}", root))
    with pytest.raises(LabError) as caught:
        slots.take(Places("more", root))
    assert str(caught.value) == (
        "16 labs besides the default one are on this machine, the most it takes;"
        " see `gpuctl lab status` and stop one: `gpuctl --lab-name NAME lab stop`"
    )


def test_folders_of_labs_let_nobody_but_their_owner_in(tmp_path: Path) -> None:
    disk = tmp_path / "var" / "lib" / "gpuctl-lab"
    machine = disk / "labs" / "b" / "machines" / "i-1"
    machine.parent.mkdir(parents=True)
    for folder in (disk, machine.parent):
        folder.chmod(0o755)
    before = mode(disk.parent)
    places.make_private(machine, tmp_path)
    ours = (disk, disk / "labs", disk / "labs" / "b", machine.parent, machine)
    assert [mode(folder) for folder in ours] == [0o700] * 5
    assert mode(disk.parent) == before


def test_nobody_else_can_hold_a_lock_of_labs(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch(mode=0o644)
    places.open_private(lock).close()
    assert mode(lock) == 0o600
    places.open_private(tmp_path / "new").close()
    assert mode(tmp_path / "new") == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user for a moment")
def test_other_users_are_told_whose_labs_are(root: Path) -> None:
    lab = Places("b", root)
    slots.take(lab)
    state.hold_alive(lab).close()
    os.seteuid(65534)
    try:
        with pytest.raises(LabError) as asked:
            state.record(lab)
        with pytest.raises(LabError) as listed:
            places.everywhere(root)
    finally:
        os.seteuid(0)
    advice = "is closed to you; labs belong to root: run gpuctl as root"
    assert str(asked.value) == f"{lab.alive} {advice}"
    assert str(listed.value).endswith(advice)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
