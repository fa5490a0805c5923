"""A storm over a run of processes on this machine: real agents, without units, ssh and machines.

Each node has one rank.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from config.run.run_file import Task
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.run_secrets_file import remove_handover, write_handover
from engine.agent.link.control import call
from engine.contract.codec import to_json
from engine.plan.launch_plan import launch_plan
from tests.engine.conftest import make_inventory, unpacked_agent
from tests.storm.supervise import GONE, PLAN, heartbeats_of, workers_of
from tests.storm.weather import Storm, run_fields


@dataclass
class ProcessStorm(Storm):
    """A run in a folder of its own. `ranks` are its nodes, one rank on each."""

    cut_s: float = 8.0
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gpuctl-storm-")))

    @property
    def control(self) -> Path:
        return self.folder

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def journal(self) -> Path:
        return Path(self.folder / JOURNAL)

    @property
    def kinds(self) -> Mapping[str, Callable[[], str]]:
        return {
            "exit code": self.exit_code,
            "no output": self.silence,
            "supervisor killed": self._kill_supervisor,
            "client killed": self._kill_client,
            "job killed": lambda: self._on_a_node(self._kill_job),
            "heartbeats killed": lambda: self._on_a_node(self._kill_heartbeats),
            "worker killed": lambda: self._on_a_node(self._kill_worker),
            "link cut": lambda: self._on_a_node(self._cut),
            "node lost": lambda: self._on_a_node(self._lose),
        }

    def _on_a_node(self, does: Callable[[str], None]) -> str:
        name = self.chance.choice(self.names)
        does(name)
        return name

    def begin(self) -> None:
        """Start the run and a client that follows it."""
        link = self.folder / "link"
        link.write_text("1")
        self.checkpoints.mkdir()
        run = Task.model_validate(run_fields(self.ranks, 1, STORM=str(self.folder), LINK=str(link)))
        plan = json.loads(
            json.dumps(to_json(launch_plan(run, make_inventory(self.ranks), "storm-000001")))
        )
        for node in plan["nodes"]:
            own = self.folder / node["name"]
            node["files"] = {str(own / Path(at).name): text for at, text in node["files"].items()}
            node["environment"]["GPUCTL_CHECKPOINT_DIR"] = str(self.checkpoints)
        (self.folder / PLAN).write_text(json.dumps(plan))
        (self.folder / "agent.pyz").symlink_to(unpacked_agent())
        self.names: list[str] = [node["name"] for node in plan["nodes"]]
        self._addresses = 100
        write_handover(self.folder, b"{}")
        self._supervisor = self._start_supervisor()
        self._client = self._start_client()

    def _start_supervisor(self) -> subprocess.Popen[bytes]:
        log = (self.folder / "supervisor.log").open("ab")
        argv = [sys.executable, "-m", "tests.storm.supervise", str(self.folder)]
        with log:
            return subprocess.Popen(argv, stdout=log, stderr=log)

    def _start_client(self) -> subprocess.Popen[bytes]:
        """Follow the journal from the end of the client's copy, whose last line may be a part."""
        copy = self.folder / "copy"
        whole = copy.read_bytes().rpartition(b"\n") if copy.exists() else (b"", b"", b"")
        copy.write_bytes(whole[0] + whole[1])
        argv = [sys.executable, str(self.folder / "agent.pyz"), "follow", str(self.folder)]
        with copy.open("ab") as out:
            return subprocess.Popen([*argv, str(out.tell())], stdout=out)

    def look(self) -> None:
        """Make nodes again as an attached client does; the supervisor must live."""
        log = (self.folder / "supervisor.log").read_text()
        assert self._supervisor.poll() in (None, 0), log
        self._heal()

    def _heal(self) -> None:
        """Make the machines again that the run waits for."""
        last = [e for e in self.events() if e["kind"] in ("waiting_for_nodes", "attempt_started")]
        if not last or last[-1]["kind"] != "waiting_for_nodes":
            return
        for name in last[-1]["nodes"]:
            if (self.folder / f"{GONE}-{name}").exists():
                shutil.rmtree(self.folder / name, ignore_errors=True)  # the new one is empty
                (self.folder / f"{GONE}-{name}").unlink()
                self._addresses += 1
                address = json.dumps({name: f"10.213.1.{self._addresses}"}, separators=(",", ":"))
                assert call(self.folder, f"healed {address}") == 0

    def _jobs(self, name: str) -> list[int]:
        """Return the bashes of the node's job: children of any of its worker's threads."""
        workers, found = workers_of(self.folder / name), set[int]()
        for worker in workers:
            for file in Path(f"/proc/{worker}/task").glob("*/children"):
                with suppress(OSError):  # it has ended
                    found |= {*map(int, file.read_text().split())}
        return sorted(found - set(workers))

    def _processes(self, name: str) -> list[int]:
        """Return the processes of the node's jobs and workers."""
        return [*self._jobs(name), *workers_of(self.folder / name)]

    def _kill_job(self, name: str) -> None:
        _kill(self._jobs(name))

    def _kill_heartbeats(self, name: str) -> None:
        _kill(heartbeats_of(self.folder / name))

    def _kill_worker(self, name: str) -> None:
        """The node's unit ends with its worker: the job too."""
        _kill(reversed(self._processes(name)))

    def _lose(self, name: str) -> None:
        (self.folder / f"{GONE}-{name}").touch()
        _kill(reversed(self._processes(name)))

    def _kill_supervisor(self) -> str:
        self._supervisor.kill()
        self._supervisor.wait()
        time.sleep(self.chance.random())  # systemd waits for a second
        self._supervisor = self._start_supervisor()
        return "supervisor"

    def _kill_client(self) -> str:
        self._client.kill()
        self._client.wait()
        self._client = self._start_client()
        return "client"

    def _cut(self, name: str) -> None:
        stopped = self._processes(name)
        _kill(reversed(stopped), signal.SIGSTOP)
        time.sleep(self.cut_s)
        _kill(stopped, signal.SIGCONT)

    def check_end(self) -> None:
        self._supervisor.wait(30)
        remove_handover(self.folder)
        self._client.wait(30)
        for name in self.names:
            assert not workers_of(self.folder / name), f"{name} still has a worker"
        assert (self.folder / "copy").read_bytes() == self.journal.read_bytes()

    def clear(self) -> None:
        """End what is left of the run."""
        for name in getattr(self, "names", []):
            _kill(reversed(self._processes(name)))
        for process in (self._supervisor, self._client):
            process.kill()
            process.wait()
        remove_handover(self.folder)


def _kill(processes: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            is_leader = os.getpgid(pid) == pid != os.getpgid(0)
            os.killpg(pid, number) if is_leader else os.kill(pid, number)


def weather(seed: int, failures: int, ranks: int, cut_s: float = 8.0) -> Storm:
    """Let so many failures hit a run; AssertionError unless it ends well and every step is there.

    Its folder is kept if it does not.
    """
    found = ProcessStorm(ranks, random.Random(seed), cut_s=cut_s)
    found.begin()
    try:
        found.rage(failures)
    except BaseException:
        print(f"seed {seed}: {', '.join(found.hits)}; kept in {found.folder}", file=sys.stderr)
        raise
    finally:
        found.clear()
    shutil.rmtree(found.folder)
    return found
