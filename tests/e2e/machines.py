"""Machines of a cluster, and what their host does to them: links cut, power lost."""

import json
import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.host_commands import call
from lab.machines import cgroups
from tests.e2e.conftest import Gpuctl

_ENTER_SCOPE = (
    "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1"
    " org.freedesktop.systemd1.Manager StartTransientUnit 'ssa(sv)a(sa(sv))'"
    " session-7.scope fail 1 PIDs au 1 $PPID 0 > /dev/null"
)


@dataclass(frozen=True)
class Machines:
    """The machines of a cluster, as the lab runs them and its host can hurt them."""

    gpuctl: Gpuctl
    cluster: str

    def instance_of(self, name: str) -> str:
        """The instance of the node, or of the `bastion`."""
        (cluster,) = self.gpuctl.json("--lab", "status", self.cluster)
        if name == "bastion":
            others = [one for one in cluster["others"] if one.startswith("instance ")]
            return str(others[0].removeprefix("instance "))
        return str(next(n["instance_id"] for n in cluster["nodes"] if n["name"] == name))

    @property
    def namespace(self) -> str:
        """The network namespace that the lab's bridge is in."""
        return self.gpuctl.lab.namespace

    def link_of(self, name: str) -> str:
        """The end in the lab's bridge of the machine's link."""
        network = f"--net=/proc/{self.leader_of(name)}/ns/net"
        inside = json.loads(call("nsenter", network, "ip", "-json", "link", "show", "host0"))
        links = json.loads(call("ip", "-n", self.namespace, "-json", "link", "show"))
        return str(next(k["ifname"] for k in links if k["ifindex"] == inside[0]["link_index"]))

    def set_link(self, link: str, state: str) -> None:
        """Cut the link (`down`), or mend it (`up`)."""
        call("ip", "-n", self.namespace, "link", "set", link, state)

    def leader_of(self, name: str) -> int:
        """The machine's process 1, as the host numbers it."""
        for pid in cgroups.processes(self.gpuctl.lab, self.instance_of(name)):
            with suppress(OSError):  # it has ended
                status = Path(f"/proc/{pid}/status").read_text()
                if re.search(r"^NSpid:\t\d+\t1$", status, re.MULTILINE):
                    return pid
        raise AssertionError(f"{name} does not run")

    def put_logins_into_scopes(self) -> None:
        """Put gpuctl's connections to the nodes into units that end when a shutdown begins.

        pam_systemd does so, which the lab's machines do not have
        (docs/develop/supervisor.md).
        """
        self.gpuctl("--lab", "exec", self.cluster, "--", _ENTER_SCOPE)

    def run_inside(self, name: str, script: str) -> None:
        """Run the script as the machine's root, without its network."""
        spaces = ("--user", "--mount", "--uts", "--net", "--pid", "--ipc")
        call("nsenter", f"--target={self.leader_of(name)}", *spaces, "/bin/sh", "-c", script)

    def pull_the_plug(self, name: str) -> None:
        """The node's systemd-nspawn is killed, as a host that fails."""
        status = Path(f"/proc/{self.leader_of(name)}/status").read_text()
        nspawn = re.search(r"^PPid:\t(\d+)$", status, re.MULTILINE)
        assert nspawn
        os.kill(int(nspawn[1]), signal.SIGKILL)
