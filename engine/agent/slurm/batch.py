"""The start of a job's script on node 0, as slurmstepd starts it.

The script runs as a copy, with Slurm's variables; its output goes to the run's output and to the
files that the header names. Its exit status is the job's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from engine.agent.slurm.layout import environment_values, file_name, repeat_counts
from engine.agent.slurm.srun import FAILED_STEPS, HOME, TRAVELLED

_OF_GROUP = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
_DRAIN_S = 2.0  # for output of processes that outlive the script


def sbatch(words: list[str]) -> int:
    """Run the script with the settings of the first word, as JSON; return its exit status."""
    settings: dict[str, Any] = json.loads(words[0])
    home = Path(sys.argv[0]).resolve().parent.parent
    environment = job_environment(dict(os.environ), home, settings)
    return Batch(home, settings, environment).run()


def job_environment(given: dict[str, str], home: Path, settings: dict[str, Any]) -> dict[str, str]:
    """Return the script's environment: the node's, Slurm's variables, and `srun` on PATH."""
    nodes = given["GPUCTL_NODES_IPS"].split()
    job = str(1_000_000 + int(re.sub(r".*-", "", given["GPUCTL_RUN_ID"]), 16))
    whole = int(given.get("GPUCTL_GPUS_PER_NODE", "0"))
    gpus = min(whole, int(settings.get("gpus_per_node") or whole))
    cpus = len(os.sched_getaffinity(0))
    tasks_per_node = int(given.get("SLURM_NTASKS_PER_NODE", "0"))
    tasks = int(given.get("SLURM_NTASKS", "0")) or len(nodes) * (tasks_per_node or 1)
    counts = [tasks // len(nodes) + (n < tasks % len(nodes)) for n in range(len(nodes))]
    now = int(time.time())
    own = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NODELIST": ",".join(nodes),
        "SLURM_NODELIST": ",".join(nodes),
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_TASKS_PER_NODE": repeat_counts(counts),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_CPUS_PER_NODE": repeat_counts([cpus] * len(nodes)),
        "SLURM_SUBMIT_DIR": given.get("GPUCTL_WORKDIR", given.get("HOME", "/")),
        "SLURM_SUBMIT_HOST": nodes[0],
        "SLURM_CLUSTER_NAME": given.get("GPUCTL_CLUSTER", "gpuctl"),
        "SLURM_JOB_START_TIME": str(now),
        "SLURM_JOB_USER": given.get("USER", "root"),
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
        "SLURM_RESTART_COUNT": given.get("GPUCTL_RESTART_COUNT", "0"),
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURMD_NODENAME": nodes[0],
        "SLURM_TOPOLOGY_ADDR": nodes[0],
        "SLURM_CONF": "/dev/null",
        "SLURM_WORKING_CLUSTER": given.get("GPUCTL_CLUSTER", "gpuctl"),
        "ENVIRONMENT": "BATCH",
        "TMPDIR": given.get("TMPDIR", "/tmp"),  # noqa: S108
        HOME: str(home),
        TRAVELLED: ",".join(settings.get("travelled", ())),
        "BASH_ENV": str(home / "bash_env"),
        "GPUCTL_SLURM_BASH_ENV": given.get("BASH_ENV", ""),
        "PATH": f"{home}:{given.get('PATH', '')}:{home / 'fallback'}",
    }
    environment = {**given, **own}
    if tasks_per_node or "SLURM_NTASKS" in given:
        environment |= {"SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks)}
    if settings.get("time_s"):
        environment["SLURM_JOB_END_TIME"] = str(now + int(settings["time_s"]))
    if "SLURM_ARRAY_TASK_ID" in given:
        environment["SLURM_ARRAY_JOB_ID"] = job
    if whole:
        numbers = ",".join(map(str, range(gpus)))
        environment |= {"SLURM_GPUS_ON_NODE": str(gpus), "SLURM_JOB_GPUS": numbers}
        if gpus < whole:
            environment |= {"CUDA_VISIBLE_DEVICES": numbers, "GPU_DEVICE_ORDINAL": numbers}
    environment |= _for_mpi(environment, counts)
    return environment


def _for_mpi(environment: dict[str, str], counts: list[int]) -> dict[str, str]:
    """Return variables with which mpirun starts its daemons by gpuctl's agent, and not by Slurm.

    In a job of Slurm the launchers of Open MPI, MPICH and Intel MPI call srun themselves, and take
    nodes and tasks from SLURM_*; these variables say the same in their words.
    """
    folder = environment["GPUCTL_RUN_FOLDER"]
    agent, hostfile = f"{folder}/bin/ssh", f"{folder}/bin/slurm/hostfile"
    return {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_ras": "^slurm",
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_orte_default_hostfile": hostfile,
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_btl_tcp_if_exclude": "lo,docker0",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_ras": "^slurm",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_prte_default_hostfile": hostfile,
        "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_RMK": "user",
        "HYDRA_HOST_FILE": f"{hostfile}-hydra",
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
        "I_MPI_HYDRA_RMK": "user",
        "I_MPI_HYDRA_HOST_FILE": f"{hostfile}-hydra",
        "I_MPI_PERHOST": str(max(counts)),
    }


class Batch:
    """The script's process, its output, and the signal before its time limit."""

    def __init__(self, home: Path, settings: dict[str, Any], environment: dict[str, str]) -> None:
        self._home, self._settings, self._environment = home, settings, environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run the script and return its exit status; 128 and the signal that ended it."""
        self._write_hostfiles()
        (self._home / FAILED_STEPS).unlink(missing_ok=True)
        script = self._home / "slurm_script"
        script.chmod(0o700)
        output, error = self._files()
        with self._input() as stdin:
            try:
                process = subprocess.Popen(
                    [str(script)],
                    env=self._environment,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            except OSError as problem:
                sys.stderr.write(f"slurmstepd: error: execve(): {problem.strerror}: {script}\n")
                return 126 if isinstance(problem, PermissionError) else 127
        self._process = process
        for name in _OF_GROUP:
            signal.signal(getattr(signal, name), lambda *_: None)  # the script gets it too
        pumps = [
            threading.Thread(target=self._copy, args=streams, daemon=True)
            for streams in (
                (process.stdout, sys.stdout.buffer, output),
                (process.stderr, sys.stderr.buffer, error),
            )
        ]
        for pump in pumps:
            pump.start()
        self._plan_signal()
        status = process.wait()
        for pump in pumps:
            pump.join(_DRAIN_S)
        self._warn_of_steps(status)
        return 128 - status if status < 0 else status

    def _write_hostfiles(self) -> None:
        """Write the hostfiles of mpirun, with the tasks of each node as slots."""
        from engine.agent.slurm.layout import expand_counts  # noqa: PLC0415

        nodes = self._environment["SLURM_JOB_NODELIST"].split(",")
        counts = expand_counts(self._environment["SLURM_TASKS_PER_NODE"])
        pairs = list(zip(nodes, counts))  # noqa: B905  Python before 3.10
        (self._home / "hostfile").write_text("".join(f"{n} slots={c}\n" for n, c in pairs if c))
        hydra = "".join(f"{n}:{c}\n" for n, c in pairs if c)
        (self._home / "hostfile-hydra").write_text(hydra)

    def _files(self) -> tuple[IO[bytes] | None, IO[bytes] | None]:
        """Open the files of output and errors; without `--error` both go to one."""
        pattern = self._settings.get("output") or "slurm-%j.out"
        if not self._settings.get("output") and "SLURM_ARRAY_TASK_ID" in self._environment:
            pattern = "slurm-%A_%a.out"
        output = self._open(pattern)
        error = self._open(self._settings["error"]) if self._settings.get("error") else output
        return output, error

    def _open(self, pattern: str) -> IO[bytes] | None:
        path = Path(file_name(pattern, environment_values(self._environment)))
        with contextlib.suppress(OSError):  # opening the file says what is wrong
            path.parent.mkdir(parents=True, exist_ok=True)
        mode = "ab" if self._settings.get("open-mode") == "append" else "wb"
        try:
            return path.open(mode, buffering=0)
        except OSError as error:
            text = f"{path}: {error.strerror}; the output is in the run's log alone"
            sys.stderr.write(f"gpuctl: {text}\n")
            return None

    def _input(self) -> IO[bytes]:
        values = environment_values(self._environment)
        return Path(file_name(self._settings.get("input") or os.devnull, values)).open("rb")

    def _copy(self, stream: IO[bytes], shown: IO[bytes], file: IO[bytes] | None) -> None:
        while data := os.read(stream.fileno(), 65536):
            with self._lock:
                with contextlib.suppress(OSError):  # nobody reads any more; the file has it
                    shown.write(data)
                    shown.flush()
                with contextlib.suppress(OSError):  # its disk is full
                    if file is not None:
                        file.write(data)

    def _plan_signal(self) -> None:
        """Send the signal of `--signal` at its time before the limit."""
        settings = self._settings
        if "signal" not in settings:
            return
        delay = max(0, int(settings["time_s"]) - int(settings["signal_s"]))
        timer = threading.Timer(delay, self._send_signal)
        timer.daemon = True
        timer.start()

    def _send_signal(self) -> None:
        name = str(self._settings["signal"])
        number = int(name) if name.isdecimal() else getattr(signal, f"SIG{name}", None)
        if number is None:
            sys.stderr.write(f"gpuctl: --signal={name}: there is no such signal\n")
        elif self._settings["signal_to"] == "script":
            if self._process is not None:
                self._process.send_signal(int(number))
        else:
            for pid in self._steps():
                with contextlib.suppress(OSError):  # the step has ended
                    os.kill(pid, int(number))

    def _steps(self) -> list[int]:
        """Return the processes of `srun` that run."""
        try:
            state = json.loads((self._home / "steps.json").read_text() or "{}")
        except (OSError, ValueError):
            return []
        return [int(pid) for pid in state.get("steps", ())]

    def _warn_of_steps(self, status: int) -> None:
        """Warn if the script ended with 0 although a step failed: Slurm counts the script alone."""
        path = self._home / FAILED_STEPS
        if status or not path.exists():
            return
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records[:5]:
            sys.stderr.write(
                f"gpuctl: WARNING: step {record['step']} failed with {record['status']}, and the"
                f" script ended with 0: srun {record['command']}\n"
            )
        sys.stderr.write(
            "gpuctl: WARNING: as in Slurm the job counts as done;"
            " `set -e -o pipefail` in the script makes a failed step the job's failure,"
            " except behind `&`, where `wait PID` has its status\n"
        )
        sys.stderr.flush()
