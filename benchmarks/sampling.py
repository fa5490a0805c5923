"""What the sampler of a node takes of a core.

    .venv/bin/python -m benchmarks.sampling --seconds 120

The real sampler works in this process, every 5 seconds, for so long; its processor time, kernel
and imports included, is compared with the time of day. It reads files of the size that a
p5.48xlarge has: 192 processors, 32 EFA devices, 10 disks. nvidia-smi is a stand-in that prints 8
lines at every interval: the time of the real tool is NVIDIA's, and not in the figure.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

from engine.agent.link.event_stream import EventStream
from engine.agent.metrics import gpu_counters
from engine.agent.metrics.node_counters import RDMA_COUNTERS
from engine.agent.metrics.sampler import INTERVAL_S, Sampler

CPUS, EFA, GPUS, DISKS = 192, 32, 8, 10
SMI = f"""#!/bin/bash
if [ "$1" = nvlink ]; then
  for gpu in {{0..{GPUS - 1}}}; do
    echo "GPU $gpu: NVIDIA H100 (UUID: GPU-$gpu)"
    for link in {{0..17}}; do
      printf '\\t Link %d: Data Tx: 123456789 KiB\\n\\t Link %d: Data Rx: 12345 KiB\\n' $link $link
    done
  done
  exit
fi
while :; do
  for gpu in {{0..{GPUS - 1}}}; do echo "$gpu, 97, 65012, 81559, 640.12, 55, 0, 0"; done
  sleep {gpu_counters.LOOP_S}
done
"""


def large_node(root: Path) -> None:
    """Write the files of a large node."""
    stat = "".join(f"cpu{n} 55501 20 30303 9000000 500 600 40 70 0 0\n" for n in range(CPUS))
    disk = "5000 12 800000 300 7000 34 1600000 900 0 10 20 0 0 0 0 5 6"
    group = "sys/fs/cgroup/system.slice/run.service"
    files = {
        "proc/stat": f"cpu  {stat[5:60]}\n{stat}intr 999999999 {'0 ' * 4000}\n",
        "proc/meminfo": Path("/proc/meminfo").read_text(),
        "proc/diskstats": "".join(f" 259 {n} nvme{n}n1 {disk}\n" for n in range(DISKS)),
        "proc/net/dev": "".join(f" ens{n}: 12345 1 0 0 0 0 0 0 98765 2\n" for n in range(EFA)),
        "proc/self/cgroup": "0::/system.slice/run.service\n",
        f"{group}/cpu.stat": "usage_usec 1500000\n",
        f"{group}/memory.current": "5000\n",
        f"{group}/memory.stat": "inactive_file 1000\n" * 40,
    }
    for n in range(EFA):
        port = f"sys/class/infiniband/rdmap{n}s0/ports/1/hw_counters"
        files |= {f"{port}/{name}": "123456789012\n" for name in RDMA_COUNTERS}
        (root / f"sys/class/net/ens{n}/device").mkdir(parents=True)
    for n in range(DISKS):
        (root / f"sys/block/nvme{n}n1/device").mkdir(parents=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


class Counted:
    """A stream that counts what is written to it, as the pipe to the head does not."""

    samples = 0
    size = 0

    def write(self, data: bytes, /) -> int:
        """Count the samples and their bytes."""
        self.samples += data.count(b'"sample"')
        self.size += len(data)
        return len(data)


def measure(root: Path, seconds: float, interval_s: float = INTERVAL_S) -> tuple[float, Counted]:
    """Sample the node for so long; return the part of a core, and what was sent."""
    stream = Counted()
    sampler = Sampler(root, EventStream(stream), interval_s, root)
    begin, busy = time.monotonic(), time.process_time()
    sampler.start()
    threading.Event().wait(seconds)
    sampler.close()
    return (time.process_time() - busy) / (time.monotonic() - begin), stream


def main() -> None:
    """Print the part of a core."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as name:
        root = Path(name)
        large_node(root)
        (root / "nvidia-smi").write_text(SMI)
        (root / "nvidia-smi").chmod(0o755)
        os.environ["PATH"] = f"{root}:{os.environ['PATH']}"
        part, stream = measure(root, seconds)
    print(f"{part:.3%} of a core, {part * INTERVAL_S * 1e3:.2f} ms a sample")
    print(f"{stream.samples} samples, {stream.size / max(1, stream.samples):.0f} bytes each")


if __name__ == "__main__":
    main()
