"""A storm over a run on machines of the lab: units, ssh, a client that makes lost nodes again.

The cluster has shared storage, in which checkpoints outlive a machine. The head is not lost: that
ends a run (docs/look-up/failures.md).
"""

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.places import Places
from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file, run_file
from tests.e2e.machines import Machines
from tests.storm.weather import Storm, run_fields

NAME = "storm"
MOUNT = "/data"
STORAGE = {"shared": {"type": "fsx-lustre", "path": MOUNT}}
LINK = "/sys/class/net/host0/carrier"
RUNS = "var/lib/gpuctl/runs"
MEMORY = "systemd-run --scope --quiet -p MemoryMax=60M -p MemorySwapMax=0"
OUT_OF_MEMORY = f"{MEMORY} python3 -c 'bytearray(300 << 20)' || exit $?"
DISK_FULL = "mount -t tmpfs -o size=64k tmpfs /mnt; head -c 1M /dev/zero > /mnt/file || exit 1"
LEFT = (
    "for i in $(seq 100); do [ \"$(systemctl list-units --no-legend 'gpuctl-run-*' | wc -l)\" = 0 ]"
    " && break; sleep 0.2; done; systemctl list-units --no-legend 'gpuctl-run-*'; pgrep -ax sleep;"
    " true"
)


@dataclass
class MachineStorm(Storm):
    """A run on a cluster with shared storage at `mount`; `nodes` divide the ranks."""

    machines: Machines = field(kw_only=True)
    nodes: int = field(kw_only=True)
    mount: str = MOUNT
    calm: bool = False
    """Whether to leave out what takes long: lost machines, long silences."""

    @property
    def control(self) -> Path:
        (storage,) = self.machines.gpuctl.lab.file_systems.iterdir()
        return storage / NAME

    @property
    def checkpoints(self) -> Path:
        return self.control.parent / "gpuctl" / self.run_id

    @property
    def journal(self) -> Path:
        lab = self.machines.gpuctl.lab
        return lab.machines / self._head / "root" / RUNS / self.run_id / "journal.jsonl"

    @property
    def kinds(self) -> Mapping[str, Callable[[], str]]:
        short: dict[str, Callable[[], str]] = {
            "exit code": self.exit_code,
            "rank killed": lambda: self.fail("kill -KILL $BASHPID"),
            "rank leaves its session": lambda: self.fail("setsid -f sleep 1234; exit 4"),
            "out of memory": lambda: self.fail(OUT_OF_MEMORY),
            "disk full": lambda: self.fail(DISK_FULL),
            "worker killed": self._kill_worker,
            "supervisor killed": self._kill_supervisor,
            "client killed": self._kill_client,
        }
        long = {
            "no output": self.silence,
            "link cut for 8 s": self._cut,
            "link cut until the node is lost": self._cut_for_long,
            "machine killed": self._pull_the_plug,
            "machine powered off": self._power_off,
        }
        return short if self.calm else short | long

    def begin(self, folder: Path) -> None:
        """Start the run, and a client that follows it and makes lost nodes again."""
        self._on("node0", f"mkdir {self.mount}/{NAME}")
        fields = run_fields(
            self.nodes, self.ranks // self.nodes, STORM=f"{self.mount}/{NAME}", LINK=LINK
        )
        (name, commands) = (fields.pop("name"), list(fields.pop("commands")))
        file = run_file(folder, name, commands, **fields)
        gpuctl, cluster = self.machines.gpuctl, self.machines.cluster
        started = gpuctl.json("--lab", "run", str(file), "--cluster", cluster, "--detach")
        self.run_id = str(started["run_id"])
        self._head = self.machines.instance_of("node0")
        self._log = folder / "client.log"
        self._start_client()

    def _start_client(self) -> None:
        gpuctl = self.machines.gpuctl
        with self._log.open("ab") as log:
            self._client = subprocess.Popen(
                gpuctl.words("--lab", "attach", self.run_id),
                env=gpuctl.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def look(self) -> None:
        code = self._client.poll()
        assert code in (None, 0), f"the client ended with {code}; its output is in {self._log}"

    def _on(self, name: str, command: str) -> str:
        return self.machines.gpuctl("--lab", "ssh", self.machines.cluster, name, "--", command)

    def _worker(self) -> int:
        """Return the rank of a random node that is not the head."""
        return self.chance.randrange(1, self.nodes)

    def _kill_worker(self) -> str:
        rank = self.chance.randrange(self.nodes)
        unit = f"gpuctl-run-{self.run_id}-{rank}"
        self._on(f"node{rank}", f"systemctl kill -s KILL --kill-who=main {unit} || true")
        return f"node{rank}"

    def _kill_supervisor(self) -> str:
        self._on("node0", f"systemctl kill -s KILL gpuctl-run-{self.run_id} || true")
        return "node0"

    def _kill_client(self) -> str:
        self._client.kill()
        self._client.wait()
        self._start_client()
        return "client"

    @contextmanager
    def _link_cut(self) -> Iterator[str]:
        self.wait_for_progress()
        name = f"node{self._worker()}"
        link = self.machines.link_of(name)
        self.machines.set_link(link, "down")
        try:
            yield name
        finally:
            self.machines.set_link(link, "up")

    def _cut(self) -> str:
        with self._link_cut() as name:
            time.sleep(8)  # the disturbance
        return name

    def _cut_for_long(self) -> str:
        with self._link_cut() as name:
            before = self.count("waiting_for_nodes")
            self.wait_for(lambda: self.count("waiting_for_nodes") > before, "the cut to be noticed")
        return name

    def _pull_the_plug(self) -> str:
        self.wait_for_progress()
        name = f"node{self._worker()}"
        self.machines.pull_the_plug(name)
        return name

    def _power_off(self) -> str:
        self.wait_for_progress()
        name = f"node{self._worker()}"
        self._on(name, "systemctl --no-block poweroff")
        return name

    def check_end(self) -> None:
        assert self._client.wait(120) == 0, f"see {self._log}"
        gpuctl, cluster = self.machines.gpuctl, self.machines.cluster
        left = gpuctl("--lab", "exec", cluster, "--", LEFT)
        assert not re.search("gpuctl-run-|sleep", left), left
        printed = Counter(re.findall(r"(\d+ makes step \d+)$", self._logs(), re.MULTILINE))
        stored = Counter(
            line
            for event in self.journal_lines()
            if event["kind"] == "output"
            for line in event["text"].split("\n")
            if " makes step " in line
        )
        assert printed == stored
        assert set(printed.values()) == {1}, printed.most_common(3)

    def _logs(self) -> str:
        return self.machines.gpuctl("--lab", "logs", self.run_id)

    def clear(self) -> None:
        """End the client."""
        self._client.kill()
        self._client.wait()


def weather(seed: int, failures: int, ranks: int, nodes: int) -> Storm:
    """Let so many failures hit a run on a cluster of its own, in a lab of its own.

    The client's output and gpuctl's state are kept if it does not end well.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpuctl-storm-"))
    gpuctl = Gpuctl(folder, Places(NAME))
    gpuctl("lab", "stop")
    gpuctl("lab", "start")
    try:
        fields = {"nodes": nodes, "storage": STORAGE, "network": DIRECT}
        gpuctl("--lab", "up", str(cluster_file(folder, NAME, **fields)), "--yes")
        found = MachineStorm(
            ranks, random.Random(seed), machines=Machines(gpuctl, NAME), nodes=nodes
        )
        found.begin(folder)
        try:
            found.rage(failures)
        except BaseException:
            events = json.dumps(found.events(), indent=1)
            (folder / "events.json").write_text(events)
            print(f"seed {seed}: {', '.join(found.hits)}; kept in {folder}", file=sys.stderr)
            raise
        finally:
            found.clear()
        gpuctl("--lab", "down", NAME, "--yes")
    finally:
        gpuctl("lab", "stop")
    shutil.rmtree(folder)
    return found
