"""What a node's kernel counts, from files as Linux writes them."""

from pathlib import Path

import pytest

from engine.agent.metrics.node_counters import (
    RDMA_COUNTERS,
    NodeCounters,
    busy_seconds,
    disk_bytes,
    group_usage,
    memory,
    network_bytes,
    own_group,
)

STAT = (
    "cpu  1000 200 300 90000 5000 60 40 7 11 3\ncpu0 500 100 150 45000 2500 30 20 3 5 1\nintr 9\n"
)
MEMINFO = "MemTotal:       65536000 kB\nMemFree:         1000 kB\nMemAvailable:   49152000 kB\n"
DISKSTATS = """\
   7       0 loop0 9 0 99 0 0 0 0 0 0 0 0
 259       0 nvme0n1 5000 12 800000 300 7000 34 1600000 900 0 10 20 0 0 0 0 5 6
 259       1 nvme0n1p1 4900 12 790000 300 6900 34 1590000 900 0 10 20
 259       2 nvme1n1 1 0 8 0 0 0 0 0 0 0 0
"""
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 777 7 0 0 0 0 0 0 777 7 0 0 0 0 0 0
  ens5: 123456789 1000 0 0 0 0 0 0 987654321 2000 0 0 0 0 0 0
docker0:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0
"""


def test_processors_are_busy_but_for_idle_and_waiting() -> None:
    assert busy_seconds(STAT) == 16.07  # a guest's time is in the user's


def test_memory_that_the_kernel_can_free_is_not_used() -> None:
    assert memory(MEMINFO) == [16384000 << 10, 65536000 << 10]


def test_disks_and_interfaces_are_counted_once() -> None:
    assert disk_bytes(DISKSTATS, ["nvme0n1", "nvme1n1"]) == [800008 * 512, 1600000 * 512]
    assert network_bytes(NET_DEV, ["ens5"]) == [123456789, 987654321]
    assert network_bytes(NET_DEV, []) == [0, 0]


@pytest.mark.parametrize(
    ("controller", "path"),
    [("", "/system.slice/a.service"), ("memory", "/own/m"), ("cpuacct", None), ("io", None)],
)
def test_the_own_control_group(controller: str, path: str | None) -> None:
    text = "5:memory:/own/m\n4:cpu,cpuacct:/\n3:io:/../other\n0::/system.slice/a.service\n"
    assert own_group(text, controller) == path


def test_a_control_groups_usage_of_both_versions() -> None:
    both = "usage_usec 2500000\nuser_usec 2000000\n"
    stat = "anon 5\ninactive_file 300\n"
    assert group_usage(both, 1e6, "1000\n", stat, "inactive_file") == [2.5, 700]
    old = "cache 5\ntotal_inactive_file 400\n"
    assert group_usage("3500000000\n", 1e9, "1000\n", old, "total_inactive_file") == [3.5, 600]


def machine(root: Path, **files: str) -> Path:
    """A folder with these files, and those of a machine with two disks and an interface."""
    known = {
        "proc/stat": STAT,
        "proc/meminfo": MEMINFO,
        "proc/diskstats": DISKSTATS,
        "proc/net/dev": NET_DEV,
        "proc/self/cgroup": "0::/system.slice/run.service\n",
        **files,
    }
    for path in ("block/nvme0n1/device", "block/loop0", "class/net/ens5/device", "class/net/lo"):
        (root / "sys" / path).mkdir(parents=True)
    for name, text in known.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def efa(device: str, *values: int) -> dict[str, str]:
    port = f"sys/class/infiniband/{device}/ports/1/hw_counters"
    return {f"{port}/{n}": f"{v}\n" for n, v in zip(RDMA_COUNTERS, values, strict=False)}


def test_a_sample_of_a_machine_with_efa(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/system.slice/run.service"
    files = {
        f"{group}/cpu.stat": "usage_usec 1500000\n",
        f"{group}/memory.current": "5000\n",
        f"{group}/memory.stat": "inactive_file 1000\n",
        **efa("rdmap0s31", 10, 20, 1, 300, 2, 4),
        **efa("rdmap1s31", 1, 2),  # an older driver has fewer counters
    }
    counters = NodeCounters(tmp_path, machine(tmp_path, **files))
    sample = counters.read()
    assert sample.pop("cores") > 0
    used, total = sample.pop("space")
    assert 0 < used < total
    assert sample == {
        "cpu_s": 16.07,
        "memory": [16384000 << 10, 65536000 << 10],
        "disk": [800000 * 512, 1600000 * 512],
        "network": [123456789, 987654321],
        "rdma": [11, 22, 1, 300, 2, 4],
        "job": [1.5, 4000],
    }


def test_infiniband_counts_words_of_four_bytes(tmp_path: Path) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1/counters"
    files = {f"{port}/port_rcv_data": "100\n", f"{port}/port_xmit_data": "200\n"}
    sample = NodeCounters(tmp_path, machine(tmp_path, **files)).read()
    assert sample["rdma"] == [400, 800, 0, 0, 0, 0]


def test_the_first_version_of_control_groups(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/gpuctl/run\n3:memory:/gpuctl/run\n0::/\n",
        "sys/fs/cgroup/cpuacct/gpuctl/run/cpuacct.usage": "2000000000\n",
        "sys/fs/cgroup/memory/gpuctl/run/memory.usage_in_bytes": "900\n",
        "sys/fs/cgroup/memory/gpuctl/run/memory.stat": "total_inactive_file 100\n",
    }
    assert NodeCounters(tmp_path, machine(tmp_path, **files)).read()["job"] == [2.0, 800]


def test_both_versions_of_control_groups_together(tmp_path: Path) -> None:
    """As on the lab's machines: the second version counts time, the first one memory."""
    files = {
        "proc/self/cgroup": "3:memory:/s/run\n2:cpuacct:/\n1:cpu:/s/run\n0::/s/run\n",
        "sys/fs/cgroup/unified/s/run/cpu.stat": "usage_usec 4000000\nuser_usec 1\n",
        "sys/fs/cgroup/memory/s/run/memory.usage_in_bytes": "900\n",
        "sys/fs/cgroup/memory/s/run/memory.stat": "total_inactive_file 100\n",
    }
    assert NodeCounters(tmp_path, machine(tmp_path, **files)).read()["job"] == [4.0, 800]


def test_what_a_machine_does_not_show_is_missing(tmp_path: Path) -> None:
    root = machine(tmp_path, **{"proc/meminfo": "MemTotal: 5 kB\n", "proc/stat": "cpu  1\n"})
    sample = NodeCounters(tmp_path, root).read()
    assert sorted(sample) == ["cores", "disk", "network", "space"]
