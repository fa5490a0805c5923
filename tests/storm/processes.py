"""A storm over a run of processes on this machine: real agents, without units, ssh and machines.

The run has ranks that write a step after the other to their checkpoint. At random moments a failure
hits it. At the end every step of every rank was made once.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.run.run_file import Task
from engine.agent.control import JOURNAL, call
from engine.agent.handover import remove_handover, write_handover
from engine.launch_plan import launch_plan
from tests.engine.conftest import make_inventory, unpacked_agent
from tests.storm.supervise import GONE, PLAN, heartbeats_of, workers_of

STEPS = """
file=$STORM/steps-$GPUCTL_NODE_NAME; touch $file; step=$(wc -l < $file)
echo "begins after step $step in attempt $GPUCTL_RESTART_COUNT"
until test -e $STORM/finish; do
  sleep 0.2
  if test -e $STORM/silent; then sleep 1000; fi
  if test -e $STORM/fail-$GPUCTL_NODE_NAME; then
    code=$(cat $STORM/fail-$GPUCTL_NODE_NAME); rm $STORM/fail-$GPUCTL_NODE_NAME; exit $code
  fi
  step=$((step + 1)); echo $step >> $file; echo "step $step"
done
"""
SILENCE_S = 6
LIMIT_S = 600.0


@dataclass
class Storm:
    """A run in a folder of its own, and what hits it. `ranks` are its nodes, one rank on each."""

    ranks: int
    chance: random.Random
    cut_s: float
    hits: list[str] = field(default_factory=list)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gpuctl-storm-")))

    def begin(self) -> None:
        """Start the run and a client that follows it."""
        run = Task.model_validate(
            {
                "type": "task",
                "name": "storm",
                "nodes": self.ranks,
                "commands": (STEPS,),
                "env": {"STORM": str(self.folder)},
                "retry": {"attempts": 1000, "backoff": "1s", "node_wait": "5m"},
                "no_output_timeout": f"{SILENCE_S}s",
            }
        )
        plan = json.loads(
            launch_plan(run, make_inventory(self.ranks), "storm-000001").model_dump_json()
        )
        for node in plan["nodes"]:
            own = self.folder / node["name"]
            node["files"] = {str(own / Path(at).name): text for at, text in node["files"].items()}
            node["environment"]["GPUCTL_CHECKPOINT_DIR"] = str(self.folder / "checkpoints")
        (self.folder / PLAN).write_text(json.dumps(plan))
        (self.folder / "agent.pyz").symlink_to(unpacked_agent())
        self.names = [node["name"] for node in plan["nodes"]]
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
            return subprocess.Popen([*argv, "--from", str(out.tell())], stdout=out)

    def steps(self, name: str) -> int:
        """Return how many steps the node's rank has made."""
        file = self.folder / f"steps-{name}"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the journal but output."""
        with suppress(FileNotFoundError):
            text = (self.folder / JOURNAL).read_text()
            lines = text[: text.rfind("\n") + 1].splitlines()
            return [json.loads(line) for line in lines if '"kind": "output"' not in line]
        return []

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; meanwhile make nodes again as an attached client does."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {LIMIT_S:.0f} s"
            log = (self.folder / "supervisor.log").read_text()
            assert self._supervisor.poll() in (None, 0), log
            self._heal()
            time.sleep(0.1)

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

    def wait_for_progress(self) -> None:
        """Wait until every rank has made a step from now on."""
        before = {name: self.steps(name) for name in self.names}
        self.wait_for(lambda: all(self.steps(n) > before[n] for n in self.names), "progress")

    def hit(self) -> None:
        """Let one failure of random kind hit the run."""
        kinds: dict[str, Callable[[str], None]] = {
            "job killed": self._kill_job,
            "heartbeats killed": self._kill_heartbeats,
            "worker killed": self._kill_worker,
            "supervisor killed": self._kill_supervisor,
            "client killed": self._kill_client,
            "exit code": self._fail,
            "no output": self._silence,
            "link cut": self._cut,
            "node lost": self._lose,
        }
        kind, name = self.chance.choice(sorted(kinds)), self.chance.choice(self.names)
        self.hits.append(f"{kind} ({name})")
        kinds[kind](name)

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

    def _kill_supervisor(self, _: str) -> None:
        self._supervisor.kill()
        self._supervisor.wait()
        time.sleep(self.chance.random())  # systemd waits for a second
        self._supervisor = self._start_supervisor()

    def _kill_client(self, _: str) -> None:
        self._client.kill()
        self._client.wait()
        self._client = self._start_client()

    def _fail(self, name: str) -> None:
        (self.folder / f"fail-{name}").write_text(str(self.chance.choice([1, 3, 137, 139])))

    def _silence(self, _: str) -> None:
        def silences() -> int:
            return sum(event["kind"] == "output_stopped" for event in self.events())

        before = silences()
        (self.folder / "silent").touch()
        self.wait_for(lambda: silences() > before, "the silence to be noticed")
        (self.folder / "silent").unlink()

    def _cut(self, name: str) -> None:
        stopped = self._processes(name)
        _kill(reversed(stopped), signal.SIGSTOP)
        time.sleep(self.cut_s)
        _kill(stopped, signal.SIGCONT)

    def end(self) -> dict[str, Any]:
        """Let the job end; check every step, the client's copy and what is left; return the end."""
        self.wait_for_progress()
        (self.folder / "finish").touch()
        self.wait_for(lambda: self.events()[-1]["kind"] == "run_finished", "the end")
        self._supervisor.wait(30)
        remove_handover(self.folder)
        self._client.wait(30)
        for name in self.names:
            made = (self.folder / f"steps-{name}").read_text().split()
            assert made == [str(step) for step in range(1, len(made) + 1)], (name, made)
            assert not workers_of(self.folder / name), f"{name} still has a worker"
        copy, journal = (self.folder / file for file in ("copy", JOURNAL))
        assert copy.read_bytes() == journal.read_bytes()
        return self.events()[-1]

    def clear(self) -> None:
        """End what is left of the run."""
        for name in getattr(self, "names", []):
            _kill(reversed(self._processes(name)))
        for process in (self._supervisor, self._client):
            process.kill()
            process.wait()
        remove_handover(self.folder)


def _kill(processes: Iterator[int] | list[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            is_leader = os.getpgid(pid) == pid != os.getpgid(0)
            os.killpg(pid, number) if is_leader else os.kill(pid, number)


@contextmanager
def storm(seed: int, ranks: int, cut_s: float) -> Iterator[Storm]:
    """A run that has begun; its folder is kept if the block fails."""
    found = Storm(ranks, random.Random(seed), cut_s)
    found.begin()
    try:
        yield found
    except BaseException:
        print(f"seed {seed}: {', '.join(found.hits)}; kept in {found.folder}", file=sys.stderr)
        raise
    finally:
        found.clear()
    shutil.rmtree(found.folder)


def weather(seed: int, failures: int, ranks: int, cut_s: float = 8.0) -> Storm:
    """Let so many failures hit a run; AssertionError unless it ends well and every step is there.

    Half of them come when all ranks work again, the others at any moment.
    """
    with storm(seed, ranks, cut_s) as found:
        found.wait_for_progress()
        for _ in range(failures):
            if found.chance.random() < 0.5:
                found.wait_for_progress()
            else:
                time.sleep(2 * found.chance.random())
            found.hit()
        last = found.end()
        assert (last["status"], last["exit_code"]) == ("done", 0), last
        attempts = sum(event["kind"] == "attempt_started" for event in found.events())
        assert attempts <= failures, "an attempt failed without a cause"
        return found
