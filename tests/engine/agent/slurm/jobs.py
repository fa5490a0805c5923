"""A job of Slurm's commands on this machine: two nodes, whose remote agent is a shell here."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.agent.slurm.install import install

_AGENT = """\
#!/bin/sh
exec env -i PATH="$PATH" GPUCTL_NODE_NAME="$1" bash -c "$2"
"""


@dataclass(frozen=True)
class Ended:
    """What a job has left: status, lines of both streams, and its folder."""

    status: int
    stdout: list[str]
    stderr: list[str]
    folder: Path


@dataclass
class SlurmJob:
    """A job in `folder`; `environment` are its variables, `settings` those of its header."""

    folder: Path
    nodes: int = 2
    gpus: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def start(self, script: str) -> subprocess.Popen[str]:
        """Start a script of bash."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        home = self.folder / "bin"
        home.mkdir(exist_ok=True)
        install(home)
        (home / "ssh").write_text(_AGENT)
        (home / "ssh").chmod(0o755)
        (home / "slurm" / "slurm_script").write_text(f"#!/bin/bash\n{script}\n")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "USER": "me",
            "GPUCTL_RUN_FOLDER": str(self.folder),
            "GPUCTL_RUN_ID": "train-00002a",
            "GPUCTL_NODES_IPS": "\n".join(f"10.0.0.{n + 1}" for n in range(self.nodes)),
            "GPUCTL_GPUS_PER_NODE": str(self.gpus),
            "GPUCTL_WORKDIR": str(work),
            "SLURM_JOB_NAME": "train",
            **self.environment,
        }
        return subprocess.Popen(
            [str(home / "slurm" / "sbatch"), json.dumps(self.settings)],
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str) -> Ended:
        """Run a script of bash to its end."""
        process = self.start(script)
        stdout, stderr = process.communicate(timeout=60)
        return Ended(
            process.returncode, stdout.splitlines(), stderr.splitlines(), self.folder / "work"
        )


def wait_for(path: Path, seconds: float = 20.0) -> None:
    """Wait until a file exists."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.05)
