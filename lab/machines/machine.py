"""A machine of the lab: a real Linux system that boots with the instance's user data.

systemd-nspawn on an overlay of the flavour's image, in the lab's network namespace, with the user
data in cloud-init's NoCloud seed. The host need not run systemd.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from config.errors import LabError
from lab.fault_table import read
from lab.host_commands import call, is_mounted, succeeds
from lab.images.image import Flavour, image_path
from lab.machines import cgroups, hardware_faults, slow_network, user_namespaces
from lab.machines.host_limits import locked_memory
from lab.machines.image_faults import BOOTED, faulty_files
from lab.machines.root_files import remove_file, write_file
from lab.network import bridge, host_settings
from lab.network.namespaces import announce
from lab.places import Places, make_private

ANNOUNCEMENTS, ANNOUNCE_INTERVAL_S = 2, 2.0
"""Of a machine's address (RFC 5227, section 1.1: ANNOUNCE_NUM, ANNOUNCE_INTERVAL)."""

DRIVER = "595.91.07"
"""NVIDIA's driver on the DLAMI of October 2026 (release notes, read 2026-11-20)."""

_REBOOT = 133
"""systemd-nspawn's exit code when the machine wants to boot again."""

_PUBLIC = "etc/systemd/network/10-cloud-init-host0.network.d/%s.conf"
"""A public address in the settings of the network that cloud-init has written."""

_POWER_OFF = signal.SIGRTMIN + 3
"""What systemd-nspawn sends to a machine's systemd, which takes it by signalfd (systemd(1))."""

# A process enters its groups and the namespace before it becomes systemd-nspawn. `ip netns exec`
# would do for the namespace, but it hides the cgroups under a fresh /sys. The first argument is the
# machine's root. The host mounts it without setuid and devices; systemd-nspawn would keep that, and
# runc refuses to bind such mounts. So the machine starts in a separate mount namespace, and only
# there the root has both. It makes no device all the same (`lab.machines.user_namespaces`).
_ENTER = """
for group in $GROUPS_OF_MACHINE; do echo $$ > "$group/cgroup.procs" || exit 1; done
unset GROUPS_OF_MACHINE
exec nsenter --net=/run/netns/%s unshare --mount --propagation=slave sh -c '
    mount -o remount,bind,suid,dev "$0" && exec "$@"' "$@"
"""


@dataclass(frozen=True)
class MachineSpec:
    """The settings with which a machine boots, in the words of EC2.

    `prefix_length` is that of the subnet, `gateway` the subnet's first address. `user_data` is
    handed to cloud-init unchanged, `authorized_keys` are OpenSSH public key lines (key pairs).
    `efa_interfaces` is the number of the launch's EFA interfaces, `local_disks` the number of the
    type's instance store volumes, `name` the instance's tag `Name`.
    """

    instance_id: str
    hostname: str
    flavour: Flavour
    private_ip: str
    prefix_length: int
    gateway: str
    public_ip: str | None
    user_data: bytes
    authorized_keys: tuple[str, ...]
    instance_type: str
    efa_interfaces: int = 0
    local_disks: int = 0
    name: str = ""


class Machine:
    """One machine: it boots, ends, may boot again from its disk, and is removed."""

    def __init__(self, spec: MachineSpec, places: Places) -> None:
        self.spec = spec
        self._places = places
        self._folder = places.machines / spec.instance_id
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._ended.set()
        self._may_reboot = False
        self._root_id = user_namespaces.first_id(spec.instance_id)

    def boot(self, on_exit: Callable[[str], None]) -> None:
        """Start the machine's process.

        `on_exit(instance_id)` is called once, from a thread, when the machine has ended for any
        reason; a machine that reboots has not ended. LabError when the image is missing
        (`lab.images.image.ensure_image`) or the network is not up.
        """
        if self.running:
            raise LabError(f"machine {self.spec.instance_id} already runs", "stop it first")
        if not bridge.is_up(self._places):
            start = self._places.command("start")
            raise LabError("the lab's network is not up", f"start the lab: `{start}`")
        host_settings.allow_machines(self._places)
        self._mount()
        self._seed()
        (self._folder / "console").write_bytes(b"")
        self._may_reboot = True
        self._start()
        self._ended.clear()
        threading.Thread(target=self._announce, daemon=True).start()
        threading.Thread(
            target=self._wait, args=(on_exit,), name=self.spec.instance_id, daemon=True
        ).start()

    @property
    def pid(self) -> int | None:
        """Return the process id of systemd-nspawn; None when the machine does not run."""
        return self._process.pid if self._process and self.running else None

    @property
    def running(self) -> bool:
        """Return whether the machine has booted and not ended."""
        return not self._ended.is_set()

    def power_off(self, timeout: float = 30.0) -> None:
        """Shut the machine down; kill it if it still runs after `timeout` seconds."""
        self._may_reboot = False
        if self._process and self.running and self._takes_power_off():
            self._process.send_signal(signal.SIGTERM)  # nspawn hands it on as "power off"
            if self._ended.wait(timeout):
                return
        self.kill()

    def kill(self) -> None:
        """Kill all processes of the machine, as a power failure would."""
        self._may_reboot = False
        while self._process and self.running:
            # Just after boot its process may not have come to its groups yet.
            self._process.kill()
            cgroups.kill(self._places, self.spec.instance_id)
            self._ended.wait(0.2)
        cgroups.kill(self._places, self.spec.instance_id)

    def console(self) -> str:
        """Return what the machine wrote to its console since it booted; empty before."""
        try:
            return (self._folder / "console").read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def add_public_ip(self, address: str) -> None:
        """Add a public address to the running machine, which keeps it when it boots again."""
        self._ip_inside("address", "replace", f"{IPv4Address(address)}/32", "dev", "host0")
        self._put(_PUBLIC % address, f"[Network]\nAddress={address}/32\n".encode())

    def remove_public_ip(self, address: str) -> None:
        """Remove a public address from the running machine."""
        self._ip_inside("address", "delete", f"{IPv4Address(address)}/32", "dev", "host0")
        remove_file(self._folder / "root", _PUBLIC % address)

    def remove(self) -> None:
        """Remove everything of the machine; kill it first if it still runs."""
        self.kill()
        remove(self._places, self.spec.instance_id)

    def _mount(self) -> None:
        image = image_path(self.spec.flavour)
        if not image.is_dir():
            raise LabError(
                f"the image {self.spec.flavour} does not exist",
                "`gpuctl lab start` and `gpuctl --lab up` make what they need",
            )
        make_private(self._folder)
        for part in ("root", "upper", "work", "containers"):
            (self._folder / part).mkdir(exist_ok=True)
            os.chown(self._folder / part, self._root_id, self._root_id)
        root, lower = self._folder / "root", self._folder / "image"
        lower.mkdir(exist_ok=True)
        if not is_mounted(lower):
            user_namespaces.mount_shifted(image, lower, self._root_id)
        if not root.is_mount():
            # Volatile: nothing is synced, packages install faster; the disk need not outlive us.
            # (nspawn's --suppress-sync would refuse O_SYNC, with which runc opens its log.)
            layers = f"lowerdir={lower},upperdir={self._folder}/upper,workdir={self._folder}/work"
            # No program of a machine gives rights on the host; inside, `_ENTER` allows setuid.
            layers += ",volatile,nosuid,nodev"
            hint = f"{self._places.machines} must be on a disk that carries overlays (ext4, xfs)"
            call("mount", "-t", "overlay", self._places.namespace, "-o", layers, root, hint=hint)

    def _seed(self) -> None:
        """Write the instance's documents for cloud-init, and the files that resolve names."""
        seed = "var/lib/cloud/seed/nocloud"
        self._put(f"{seed}/user-data", self.spec.user_data)
        self._put(f"{seed}/meta-data", json.dumps(_meta_data(self.spec)).encode())
        self._put(f"{seed}/network-config", json.dumps(_network_config(self.spec)).encode())
        hardware = json.dumps(_hardware(self.spec))
        self._put(BOOTED, hardware.encode())
        for file in faulty_files(read(self._places.faults)):
            self._put(file.path, file.text.encode(), file.mode)
        hardware_faults.show_at_launch(self._places, self._folder / "root", self.spec.name)
        # Open MPI hangs on a machine that does not know its own name, whatever the user data say.
        own_name = f"127.0.0.1 localhost\n127.0.1.1 {self.spec.hostname}\n"
        self._put("etc/hosts", own_name.encode())
        servers = "".join(f"nameserver {server}\n" for server in bridge.resolvers())
        self._put("etc/resolv.conf", servers.encode())

    def _put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file in the machine; the machine's root owns it and the folders made for it."""
        write_file(self._folder / "root", path, content, mode)

    def _start(self) -> None:
        groups = cgroups.create(self._places, self.spec.instance_id, self._root_id)
        make_private(self._places.file_systems)
        root = str(self._folder / "root")
        with (self._folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _ENTER % self._places.namespace, "sh", root, *self._nspawn()],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={
                    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "GROUPS_OF_MACHINE": " ".join(str(group) for group in groups),
                },
                start_new_session=True,  # Ctrl-C on the terminal is not for machines
            )
        threading.Thread(target=self._limit_speed, args=(self._process,), daemon=True).start()

    def _nspawn(self) -> list[str]:
        limit = [] if locked_memory() is not None else ["--rlimit=MEMLOCK=infinity"]
        return [
            "systemd-nspawn",
            "--quiet",
            "--boot",
            f"--directory={self._folder}/root",
            f"--machine={self.spec.instance_id}",
            f"--hostname={self.spec.hostname}",
            f"--network-bridge={bridge.BRIDGE}",
            "--register=no",  # the host may run no systemd to register with
            "--keep-unit",
            "--settings=no",
            "--link-journal=no",
            "--resolv-conf=off",
            "--timezone=off",
            f"--private-users={self._root_id}:{user_namespaces.IDS}",
            "--private-users-ownership=off",  # `_mount` shows the machine's files with its ids
            f"--bind={self._places.file_systems}:/run/gpuctl-lab-file-systems:idmap",
            # Containers' layers are overlays, which cannot be on the overlay of this machine.
            f"--bind={self._folder}/containers:/var/lib/containers",
            "--console=read-only",
            *limit,
        ]

    def _wait(self, on_exit: Callable[[str], None]) -> None:
        assert self._process is not None
        while self._process.wait() == _REBOOT and self._may_reboot:
            self._start()
        try:
            cgroups.kill(self._places, self.spec.instance_id)
            cgroups.remove(self._places, self.spec.instance_id)
        finally:
            self._ended.set()
            on_exit(self.spec.instance_id)

    def _announce(self) -> None:
        """Announce the machine's address to its neighbours with a gratuitous ARP.

        EC2 may give an address again, to another interface. Without the announcement the
        neighbours would send to the dead machine's interface for seconds, until they ask again.
        Two are sent, as RFC 5227 says: the bridge's end of the link may not be up at the first.
        """
        left = ANNOUNCEMENTS
        with suppress(LabError):  # a machine that ended meanwhile has nothing to announce
            while self.running and left:
                leader = find_leader(self._process.pid) if self._process else None
                sent = leader is not None and announce(leader, self.spec.private_ip)
                left -= sent
                self._ended.wait(ANNOUNCE_INTERVAL_S if sent else 0.2)

    def _limit_speed(self, process: subprocess.Popen[bytes]) -> None:
        """Slow the network down as soon as there is a link, if a fault says so."""
        with suppress(LabError):  # a machine that ended meanwhile has no network
            while process.poll() is None:
                if slow_network.limit(self._places, self.spec.instance_id):
                    return
                time.sleep(0.2)

    def _takes_power_off(self) -> bool:
        """Return whether the machine's process 1 already listens for the power-off signal.

        Before that the signal would be lost, and nothing runs that must shut down in order.
        """
        try:
            status = Path(f"/proc/{_leader(self.spec.instance_id, self.pid)}/status").read_text()
        except (LabError, OSError):
            return False
        masks = [int(line.split()[1], 16) for line in status.splitlines() if line[:6] == "SigBlk"]
        return any(mask >> (_POWER_OFF - 1) & 1 for mask in masks)

    def _ip_inside(self, *words: str) -> None:
        """Run the host's `ip` in the machine's network namespace."""
        leader = _leader(self.spec.instance_id, self.pid)
        call("nsenter", f"--net=/proc/{leader}/ns/net", "ip", *words)


def remove(places: Places, instance_id: str) -> None:
    """Remove all that is left of an ended machine: mount, disk, groups."""
    folder = places.machines / instance_id
    for mount in (folder / "root", folder / "image"):
        while is_mounted(mount):
            if not succeeds("umount", mount):
                call("umount", "--lazy", mount)
    shutil.rmtree(folder, ignore_errors=True)  # `lab stop` removes what stays
    cgroups.remove(places, instance_id)


def _leader(instance_id: str, nspawn: int | None) -> int:
    """Return the host's process id of the machine's process 1, nspawn's only child."""
    leader = find_leader(nspawn) if nspawn else None
    if leader is not None:
        return leader
    raise LabError(f"machine {instance_id} does not run", "see `gpuctl lab status`")


def find_leader(nspawn: int) -> int | None:
    """Return the only child of systemd-nspawn, a machine's process 1; None when there is none."""
    try:
        children = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _meta_data(spec: MachineSpec) -> dict[str, object]:
    return {
        "instance-id": spec.instance_id,
        "instance-type": spec.instance_type,
        "local-hostname": spec.hostname,
        "public-keys": list(spec.authorized_keys),
    }


def _hardware(spec: MachineSpec) -> dict[str, object]:
    """Return what the stand-ins of a machine's image show: `lab/images/stand_ins`."""
    # The catalogue's models take long to import, and every `gpuctl --lab` would.
    from config.catalogue.instance_types import catalogue  # noqa: PLC0415

    # The driver finds no GPU of a type that is not there, such as the V100s of p3dn.
    entry = catalogue().get(spec.instance_type)
    gpus = entry.gpu.count if entry else 0
    return {
        "name": spec.instance_type,
        "gpus": gpus,
        "gpu": entry.gpu.model if entry else "",
        "gpu_memory_mib": entry.gpu.mem_mib if entry else 0,
        "nvswitch": entry is not None and entry.fabricmanager and gpus > 0,
        "efa": spec.efa_interfaces,
        "local_disks": spec.local_disks,
        "driver": DRIVER,
        "fabricmanager": DRIVER,
    }


def _network_config(spec: MachineSpec) -> dict[str, object]:
    """Return cloud-init's network config (version 2) with what EC2's DHCP would answer."""
    addresses = [f"{spec.private_ip}/{spec.prefix_length}"]
    if spec.public_ip:
        addresses.append(f"{spec.public_ip}/32")
    host0 = {
        "addresses": addresses,
        "routes": [{"to": "0.0.0.0/0", "via": spec.gateway}],
        "nameservers": {"addresses": list(bridge.resolvers())},
    }
    return {"version": 2, "ethernets": {"host0": host0}}
