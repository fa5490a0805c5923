import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from config.progress import silent
from lab import cgroups, image, leftovers, network
from lab.places import FILE_SYSTEMS, MACHINES, RUNTIME, images

pytestmark = pytest.mark.lab

CRASHES = """
import sys
from pathlib import Path
from lab import network
from lab.machine import Machine
from tests.lab.conftest import spec

network.up()
network.add_vpc("10.213.0.0/16")
network.add_subnet("10.213.0.0/24")
Machine(spec("stock", "10.213.0.4", Path(sys.argv[1]))).boot(print)
print("booted", flush=True)
sys.stdin.read()
"""


def test_a_killed_lab_is_cleared(key: Path) -> None:
    assert leftovers.found() == (), "a lab is on this machine: `gpuctl lab stop` first"
    image.ensure_image("stock", silent)
    forwarded = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    crashing = subprocess.Popen(
        [sys.executable, "-c", CRASHES, key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with crashing:
        assert crashing.stdout is not None
        assert crashing.stdout.readline() == "booted\n"
        crashing.send_signal(signal.SIGKILL)

    (images() / "partial-stock-interrupted").mkdir()
    (FILE_SYSTEMS / "fs-0123abcd").mkdir()
    removed = (
        "machine i-00000000000000004",
        "file system fs-0123abcd",
        "network namespace gpuctl-lab",
        "link gpuctl-lab0",
        "nftables table gpuctl-lab",
        "route unreachable 10.213.0.0/16",
        "route 198.18.0.0/16",
        "route unreachable 198.18.0.0/15",
        "changed setting net.ipv4.ip_forward",
        "interrupted image partial-stock-interrupted",
    )
    assert leftovers.found() == removed
    assert leftovers.clear() == removed

    assert leftovers.found() == ()
    assert leftovers.clear() == ()
    assert cgroups.machines() == ()
    assert not any((top / "gpuctl-lab").exists() for top in cgroups.hierarchies())
    assert list(MACHINES.iterdir()) == []
    assert list(FILE_SYSTEMS.iterdir()) == []
    assert "gpuctl-lab" not in Path("/proc/self/mounts").read_text()
    assert not (RUNTIME / "network.json").exists()
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == forwarded
    assert not network.is_up()
