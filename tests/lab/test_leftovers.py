import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from config.progress import silent
from lab import leftovers
from lab.images import image
from lab.machines import cgroups
from lab.network import bridge
from lab.network.bridge import LabNetwork
from lab.places import Places, images
from tests.lab.host import on_its_own_host
from tests.labs import lab_for

pytestmark = pytest.mark.lab

CRASHES = """
import sys
from pathlib import Path
from lab.machines.machine import Machine
from lab.network.bridge import LabNetwork
from lab.places import Places
from tests.lab.conftest import spec

network = LabNetwork.claim(Places(sys.argv[2]))
network.up()
network.add_vpc("10.213.0.0/16")
network.add_subnet("10.213.0.0/24")
machine = spec("stock", "10.213.0.4", Path(sys.argv[1]), network.slot)
Machine(machine, network.places).boot(print)
print("booted", flush=True)
sys.stdin.read()
"""


FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of images that nobody else looks into, with the stock image."""
    stock = image.ensure_image("stock", silent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images().mkdir(parents=True)
    (images() / stock.name).symlink_to(stock)
    image.image_path.cache_clear()
    yield
    image.image_path.cache_clear()


def test_a_killed_lab_is_cleared(key: Path, cache: None) -> None:
    places = lab_for("dies")
    leftovers.clear(places)
    crashing = subprocess.Popen(
        [sys.executable, "-c", CRASHES, key, places.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with crashing:
        assert crashing.stdout is not None
        assert crashing.stdout.readline() == "booted\n"
        crashing.send_signal(signal.SIGKILL)

    made = bridge.of(places)
    assert made is not None
    (images() / "partial-stock-interrupted").mkdir()
    (places.file_systems / "fs-0123abcd").mkdir()
    removed = (
        "machine i-00000000000000004",
        "file system fs-0123abcd",
        f"network namespace gpuctl-lab-{places.name}",
        f"link gpuctl-lab{made.slot.number}",
        f"nftables table gpuctl-lab-{places.name}",
        "route unreachable 10.213.0.0/16",
        "route unreachable 198.18.0.0/15",
        f"route {made.slot.range}",
        "changed settings net.ipv4.ip_forward, fs.inotify.max_user_instances",
        "interrupted image partial-stock-interrupted",
    )
    assert leftovers.find(places) == removed
    assert leftovers.clear(places) == removed

    assert leftovers.find(places) == ()
    assert leftovers.clear(places) == ()
    assert cgroups.machines(places) == ()
    assert not any((top / places.cgroup).exists() for top in cgroups.hierarchies())
    assert list(places.machines.iterdir()) == []
    assert list(places.file_systems.iterdir()) == []
    assert places.name not in Path("/proc/self/mounts").read_text()
    assert not (places.runtime / "network.json").exists()
    assert not bridge.is_up(places)


@on_its_own_host
def test_a_killed_lab_has_changed_the_host_until_it_is_cleared() -> None:
    before = FORWARD.read_text()
    places = Places("b")
    code = "from lab.network.bridge import LabNetwork; from lab.places import Places;"
    crashes = f"{code} LabNetwork.claim(Places('b')).up(); import os; os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", crashes], check=False)
    assert FORWARD.read_text() == "1\n"
    assert "changed settings net.ipv4.ip_forward, fs.inotify.max_user_instances" in leftovers.find(
        places
    )
    leftovers.clear(places)
    assert FORWARD.read_text() == before
    assert leftovers.find(places) == ()
    assert LabNetwork.claim(Places("c")).slot.number == 1  # its addresses are free again


def test_the_groups_of_a_machine_are_removed_when_its_last_process_has_ended() -> None:
    places = lab_for("dies")
    groups = cgroups.create(places, "i-00000000000000005", 0)
    joins = " ".join(f"{group}/cgroup.procs" for group in groups)
    script = f"for file in {joins}; do echo $$ > $file; done; echo in; read end"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as last:
        assert last.stdout is not None
        assert last.stdout.readline() == "in\n"
        with ThreadPoolExecutor(1) as pool:
            removal = pool.submit(cgroups.remove, places, "i-00000000000000005")
            with pytest.raises(TimeoutError):
                removal.result(0.1)
            last.kill()
            removal.result()
    assert not any(group.exists() for group in groups)
    assert not any((top / places.cgroup).exists() for top in cgroups.hierarchies())
