"""The network links of the lab's machines, as the host sees them: a test cuts one."""

import json
import re
from pathlib import Path

from lab.host_commands import call
from lab.machines import cgroups
from tests.e2e.conftest import Gpuctl


def leader(gpuctl: Gpuctl, instance: str) -> int:
    """The machine's process 1, as the host numbers it."""
    for pid in cgroups.processes(gpuctl.lab, instance):
        status = Path(f"/proc/{pid}/status").read_text()
        if re.search(r"^NSpid:\t\d+\t1$", status, re.MULTILINE):
            return pid
    raise AssertionError(f"{instance} does not run")


def link(gpuctl: Gpuctl, instance: str) -> str:
    """The end in the lab's bridge of the machine's link."""
    network = f"--net=/proc/{leader(gpuctl, instance)}/ns/net"
    inside = json.loads(call("nsenter", network, "ip", "-json", "link", "show", "host0"))
    links = json.loads(call("ip", "-n", gpuctl.lab.namespace, "-json", "link", "show"))
    return str(next(k["ifname"] for k in links if k["ifindex"] == inside[0]["link_index"]))


def cut(gpuctl: Gpuctl, instance: str) -> None:
    """Nothing reaches the machine any more, and it reaches nothing."""
    call("ip", "-n", gpuctl.lab.namespace, "link", "set", link(gpuctl, instance), "down")
