import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import LabError
from lab import fault_table
from lab.machines import cgroups, host_limits, slow_network, user_namespaces
from lab.machines.machine import Machine, find_leader
from lab.machines.machine_evidence import evidence
from lab.network.bridge import LabNetwork
from lab.network.slots import Slot
from lab.places import Places
from tests.lab.conftest import Boot, Booted, spec

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Booted:
    booted = boot("stock", "10.213.0.4")
    booted.wait()
    return booted


def test_cloud_init_runs_the_user_data(machine: Booted) -> None:
    assert machine.output("cat /root/ran") == "user data ran\n"
    assert machine.output("cloud-id").strip() == "nocloud"
    assert machine.output("hostname").strip() == "ip-10-213-0-4"
    assert machine.output("cat /var/lib/cloud/data/instance-id").strip() == "i-00000000000000004"


def test_the_host_shows_the_machine_to_root_alone(machine: Booted, places: Places) -> None:
    folder = places.machines / machine.machine.spec.instance_id
    for path in (folder, places.machines, places.file_systems, places.disk, places.runtime):
        assert path.stat().st_mode & 0o777 == 0o700, path
    for path in (folder / "console", folder / "root" / "etc" / "passwd", folder / "upper"):
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--clear-groups", "ls", path],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stderr == f"ls: cannot access '{path}': Permission denied\n"


def test_a_program_of_the_machine_gives_nobody_rights_on_the_host(
    machine: Booted, places: Places
) -> None:
    root = places.machines / machine.machine.spec.instance_id / "root"
    options = subprocess.check_output(["findmnt", "-no", "OPTIONS", root], text=True).split(",")
    assert {"nosuid", "nodev"} <= set(options)
    # Inside, setuid programs work as they do on any machine.
    machine.output("cp /usr/bin/id /usr/local/bin/root-id && chmod u+s /usr/local/bin/root-id")
    assert machine.output("runuser -u nobody -- root-id -un") == "root\n"


def test_the_machines_root_is_an_ordinary_user_of_the_host(machine: Booted, places: Places) -> None:
    instance = machine.machine.spec.instance_id
    first = user_namespaces.first_id(instance)
    assert machine.output("cat /proc/self/uid_map /proc/self/gid_map").split() == (
        ["0", str(first), "65536"] * 2
    )
    leader = find_leader(machine.machine.pid or 0)
    assert Path(f"/proc/{leader}").stat().st_uid == first
    machine.output("touch /made && chown nobody /made")
    root = places.machines / instance / "root"
    assert (root / "etc/passwd").stat().st_uid == (root / "etc/hosts").stat().st_uid == first
    assert (root / "made").stat().st_uid == first + 65534
    strange = machine.output("find / -xdev -nouser -not -path '/proc/*' | head")
    assert strange == "", "every file of the machine has an owner in it"
    assert "Operation not permitted" in machine.ssh("mknod /null c 1 3").stderr


def test_machines_have_users_of_their_own() -> None:
    ids = [user_namespaces.first_id(f"i-{number:017x}") for number in range(200)]
    assert len(set(ids)) > 197, "a hash: two machines share their users seldom"
    assert all(0x80000 <= first <= 0x6FFF0000 and first % 65536 == 0 for first in ids)


def test_an_image_that_cannot_be_shifted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError) as caught:
        user_namespaces.mount_shifted(Path("/proc"), tmp_path, 65536 * 9)
    assert str(caught.value) == (
        "/proc cannot be mounted with shifted user ids: Invalid argument;"
        " the lab needs Linux 5.19 or later and its images on ext4, xfs or btrfs"
    )
    assert not tmp_path.is_mount()


def test_a_program_that_yields_sleeps(machine: Booted) -> None:
    """Yielding in earnest, waiting ranks would take all processors of the host for themselves."""
    yields = (
        "import os, resource; before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw;"
        " [os.sched_yield() for _ in range(1000)];"
        " print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before > 500)"
    )
    assert machine.output(f"python3 -c '{yields}'") == "True\n"


def test_console_shows_the_host_keys_that_sshd_has(machine: Booted) -> None:
    console = machine.machine.console()
    begin, end = "-----BEGIN SSH HOST KEY KEYS-----", "-----END SSH HOST KEY KEYS-----"
    shown = console.partition(begin)[2].partition(end)[0].split()
    keys = machine.output("cat /etc/ssh/ssh_host_ed25519_key.pub").split()
    assert keys[1] in shown


def test_the_machine_knows_its_own_name(machine: Booted) -> None:
    assert machine.output("getent hosts ip-10-213-0-4").split()[0] == "127.0.1.1"


def test_it_has_the_addresses_that_the_api_reports(
    machine: Booted, lab_network: LabNetwork
) -> None:
    shown = machine.output("ip -4 -oneline address show dev host0")
    assert "10.213.0.4/24" in shown
    assert f"{lab_network.slot.public_range[4]}/32" in shown


def test_systemd_has_no_failed_unit(machine: Booted) -> None:
    assert machine.output("systemctl --failed --no-legend") == ""


def test_a_unit_returns_its_exit_code_and_reaps_its_children(machine: Booted) -> None:
    unit = "systemd-run --quiet --wait --pipe --collect -p KillMode=control-group"
    done = machine.ssh(f"{unit} sh -c 'setsid sleep 1234 & exit 7'")
    assert done.returncode == 7
    assert machine.ssh("pgrep -f 'sleep 1234'").returncode == 1


def test_packages_install_through_the_hosts_mirror(machine: Booted) -> None:
    machine.output("apt-get -qq update && apt-get -qq install -y hello")
    assert machine.output("hello") == "Hello, world!\n"


@pytest.mark.parametrize("address", ["169.254.1.1", "192.168.1.1", "10.1.2.3", "198.19.0.1"])
def test_private_ranges_are_unreachable(machine: Booted, address: str) -> None:
    program = (
        "import socket\n"
        "try: socket.create_connection(('%s', 80), timeout=5)\n"
        "except OSError as error: print(error.strerror)\n"
    )
    done = machine.ssh("python3 -", stdin=program % address)
    assert done.stdout == "No route to host\n"


def test_only_names_and_packages_leave_the_lab(machine: Booted) -> None:
    """Port 9 of the mirror: dropped on this host, so it neither answers nor refuses."""
    program = (
        "import socket\n"
        "try: socket.create_connection(('deb.debian.org', 9), timeout=2)\n"
        "except TimeoutError: print('dropped')\n"
    )
    assert machine.ssh("python3 -", stdin=program).stdout == "dropped\n"


def test_subnets_reach_each_other(machine: Booted, boot: Boot) -> None:
    other = boot("stock", "10.213.1.4")
    other.wait()
    banner = "import socket; print(socket.create_connection(('10.213.1.4', 22), 5).recv(4))"
    assert machine.ssh("python3 -", stdin=banner).stdout == "b'SSH-'\n"
    other.machine.remove()


def test_a_machine_announces_its_address(machine: Booted, boot: Boot, places: Places) -> None:
    """A neighbour that knew a dead machine by that address knows the new one before it asks."""

    def known() -> str:
        """The interface that the neighbour takes for the address's owner."""
        return machine.output("ip neigh show 10.213.0.7").split("lladdr ")[1].split()[0]

    first = boot("stock", "10.213.0.7")
    first.wait()
    machine.output("bash -c 'exec 3<>/dev/tcp/10.213.0.7/22'")
    dead = known()
    first.machine.remove()
    other = replace(first.machine.spec, instance_id="i-00000000000000099")
    second = Booted(Machine(other, places), first.key)
    second.machine.boot(second.on_exit)
    try:
        second.wait()
        mac = second.output("cat /sys/class/net/host0/address").strip()
        assert mac != dead
        for _ in range(50):  # nothing is sent to the address meanwhile: the neighbour only hears
            if known() == mac:
                break
            time.sleep(0.1)
        assert known() == mac
    finally:
        second.machine.remove()


def test_evidence_of_a_machine_needs_no_login(machine: Booted, places: Places) -> None:
    """Its processes, its neighbours, its log and its console, seen from the host."""
    texts = evidence(places, machine.machine.spec.instance_id)
    assert "/sbin/sshd" in texts["processes"] or "sshd:" in texts["processes"]
    assert "10.213.0.1 dev host0" in texts["neighbours"]
    assert "vb-" in texts["links"]
    assert "systemd" in texts["log"]
    assert "BEGIN SSH HOST KEY KEYS" in texts["console"]
    assert re.search(r"^\d+ systemd [A-Z] \(", texts["stacks"], re.MULTILINE)


def test_evidence_of_a_machine_that_does_not_run_says_so(places: Places) -> None:
    texts = evidence(places, "i-gone")
    assert texts["processes"] == "machine i-gone does not run\n"
    assert texts["console"].endswith("console: No such file or directory\n")


def test_private_addresses_are_unreachable_from_the_host(machine: Booted) -> None:
    shown = subprocess.run(
        ["ip", "route", "get", "10.213.0.4"], capture_output=True, text=True, check=False
    )
    assert "No route to host" in shown.stderr


def test_public_addresses_come_and_go(machine: Booted, lab_network: LabNetwork) -> None:
    address = str(lab_network.slot.public_range[771])
    machine.machine.add_public_ip(address)
    assert f"{address}/32" in machine.output("ip -4 -oneline address show dev host0")
    machine.machine.remove_public_ip(address)
    assert address not in machine.output("ip -4 -oneline address show dev host0")


def test_locked_memory_is_the_labs_limit(machine: Booted) -> None:
    limit = host_limits.locked_memory()
    shown = machine.output("grep 'Max locked memory' /proc/1/limits").split()[3:5]
    expected = "unlimited" if limit is None else str(limit)
    assert shown[1] == expected


def reboot(machine: Booted) -> None:
    before = machine.output("stat -c %Y /proc/1")
    machine.ssh("systemctl reboot")
    deadline = time.monotonic() + 60
    while machine.ssh("true").returncode != 0 or machine.output("stat -c %Y /proc/1") == before:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    machine.wait()


def test_a_reboot_is_not_an_end_and_the_network_stays_slow_and_public(
    machine: Booted, places: Places, lab_network: LabNetwork
) -> None:
    def limits() -> list[str]:
        inside = ["ip", "netns", "exec", places.namespace, "tc", "qdisc", "show"]
        shown = subprocess.check_output(inside, text=True) + machine.output("tc qdisc show")
        return re.findall(r"tbf .* rate (\w+) ", shown)

    assert limits() == []
    instance_id = machine.machine.spec.instance_id
    fault_table.write(places.faults, {"slow-network": (instance_id, "20mbit")})
    slow_network.limit_all(places)
    assert limits() == ["20Mbit", "20Mbit"]
    address = str(lab_network.slot.public_range[772])
    machine.machine.add_public_ip(address)

    reboot(machine)
    assert f"{address}/32" in machine.output("ip -4 -oneline address show dev host0")
    machine.machine.remove_public_ip(address)
    assert limits() == ["20Mbit", "20Mbit"]
    assert machine.output("cat /root/ran") == "user data ran\n"  # once per instance, not per boot
    assert machine.exits == []

    fault_table.write(places.faults, {})
    slow_network.limit_all(places)
    assert limits() == []


def test_a_machine_that_powers_off_itself_has_ended(boot: Boot, places: Places) -> None:
    booted = boot("stock", "10.213.0.5")
    booted.wait()
    interfaces = _interfaces(places)
    booted.ssh("systemctl poweroff")
    assert booted.ended.wait(20)
    assert booted.exits == ["i-00000000000000005"]
    assert not booted.machine.running
    assert booted.machine.pid is None
    assert len(_interfaces(places)) == len(interfaces) - 1
    assert "i-00000000000000005" not in cgroups.machines(places)


def test_power_off_shuts_down_in_order_and_it_boots_again_from_its_own_disk(boot: Boot) -> None:
    booted = boot("stock", "10.213.0.6")
    booted.wait()
    booted.output("touch /root/kept")
    booted.machine.power_off()
    assert "Reached target" in booted.machine.console().rpartition("Started")[2]
    assert booted.exits == ["i-00000000000000006"]
    booted.machine.boot(booted.on_exit)
    booted.wait()
    assert booted.output("ls /root") == "kept\nran\n"
    booted.machine.kill()
    assert booted.exits == ["i-00000000000000006"] * 2


def test_power_off_just_after_boot_is_quick(boot: Boot) -> None:
    booted = boot("stock", "10.213.0.8")
    began = time.monotonic()
    booted.machine.power_off()
    assert time.monotonic() - began < 30, "it was not killed"
    assert booted.ended.wait(60)


def test_a_removed_machine_leaves_nothing(boot: Boot, places: Places) -> None:
    booted = boot("stock", "10.213.0.9")
    booted.wait()
    booted.machine.remove()
    name = booted.machine.spec.instance_id
    assert booted.exits == [name]
    assert not (places.machines / name).exists()
    assert f"{places.machines}/{name}" not in Path("/proc/self/mounts").read_text()
    assert name not in cgroups.machines(places)
    assert cgroups.processes(places, name) == set()
    booted.machine.remove()  # once more is fine


def test_many_machines_find_inotify_instances(machine: Booted) -> None:
    """The kernel's default, 128 for all processes of a user, is enough for ten machines."""
    shown = machine.output("cat /proc/sys/fs/inotify/max_user_instances")
    assert int(shown) >= 8192


def test_a_running_machine_does_not_boot_twice(machine: Booted) -> None:
    with pytest.raises(LabError, match="machine i-00000000000000004 already runs"):
        machine.machine.boot(machine.on_exit)


def test_a_machine_that_never_booted_has_no_console(key: Path, places: Places) -> None:
    never = Machine(spec("stock", "10.213.0.10", key, Slot(0)), places)
    assert never.console() == ""
    assert not never.running
    with pytest.raises(LabError, match="does not run"):
        never.add_public_ip("198.18.3.4")
    never.remove()


def _interfaces(places: Places) -> list[str]:
    shown = subprocess.run(
        ["ip", "-n", places.namespace, "-brief", "link"],
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout.splitlines()
