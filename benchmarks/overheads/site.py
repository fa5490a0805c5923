"""The cluster that is measured: the lab, nodes in it, and an ssh_config for the peers."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab import lifecycle
from lab.places import DEFAULT, Places
from nodes.inventory import Inventory
from nodes.openssh import openssh_config, write_openssh_config

COMMAND = Path(sys.executable).with_name("gpuctl")
KEPT = "  ControlMaster auto\n  ControlPath {folder}/%C\n  ControlPersist 600\n"


class NotMeasured(Exception):
    """A peer's program is not installed, or a command failed; the message says which."""


@dataclass(frozen=True)
class Site:
    """A cluster that is ready. `folder` is the benchmark's own, and has gpuctl's state."""

    inventory: Inventory
    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    options: tuple[str, ...] = ("--lab",)

    def gpuctl(self, *arguments: str) -> list[str]:
        """Return the command line of the installed command."""
        return [str(COMMAND), *self.options, *arguments]

    def ssh_config(self, kept: bool) -> Path:
        """Write an ssh_config for the peers; with `kept` they keep their connections."""
        path = self.folder / ("kept.conf" if kept else "plain.conf")
        write_openssh_config(self.inventory)  # for the jump through the bastion
        text = openssh_config(self.inventory)
        path.write_text(text + (KEPT.format(folder=self.folder) if kept else ""))
        return path

    def end_kept(self) -> None:
        """End the connections that peers keep, which would outlive the measurement by minutes."""
        for path in self.folder.iterdir():
            if path.is_socket():
                end = ["ssh", "-o", f"ControlPath={path}", "-O", "exit", "peer"]
                subprocess.run(end, capture_output=True, check=False)

    def run(self, command: Sequence[str], **environment: str) -> float:
        """Run the command to its end and return its seconds; it must succeed."""
        return self.until(command, lambda _: False, **environment)

    def until(
        self, command: Sequence[str], seen: Callable[[str], bool], **environment: str
    ) -> float:
        """Return the seconds until `seen` is true of a line of output, or else until the end.

        The command then runs to its end, which must be a success.
        """
        started = time.perf_counter()
        with subprocess.Popen(
            command,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            took, printed = None, []
            for line in process.stdout:
                printed.append(line)
                if took is None and seen(line):
                    took = time.perf_counter() - started
            status = process.wait()
            took = time.perf_counter() - started if took is None else took
        if status != 0:
            raise NotMeasured(f"{shlex.join(command)} ended with {status}:\n{''.join(printed)}")
        return took


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment of all commands, with gpuctl's state in the folder."""
    environment = {
        **os.environ, "XDG_STATE_HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    # As a person's: Python keeps the compiled modules of gpuctl and of ansible.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def require(program: str, package: str) -> None:
    """Raise NotMeasured where a peer's program is not installed."""
    if shutil.which(program) is None:
        raise NotMeasured(f"{program} is not installed: apt-get install -y {package}")


@contextmanager
def site(nodes: int) -> Iterator[Site]:
    """A cluster of the lab with so many nodes; the lab is started, and stopped at the end."""
    if lifecycle.status(Places(DEFAULT)).up:
        raise SystemExit("a lab is running, and would be stopped: end it with `gpuctl lab stop`")
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as name:
        folder = Path(name)
        environment = environment_of(folder)
        file = folder / "bench.yaml"
        file.write_text(
            json.dumps({"name": "bench", "nodes": nodes, "instance_type": "p4d.24xlarge"})
        )
        gpuctl = [str(COMMAND), "--lab"]
        try:
            _quietly([*gpuctl, "up", str(file), "--yes"], environment)
            saved = folder / "gpuctl/lab/clusters/bench/inventory.json"
            inventory = Inventory.model_validate_json(saved.read_bytes())
            here = Site(inventory, folder, environment)
            yield here
            here.end_kept()
        finally:
            _quietly([str(COMMAND), "lab", "stop"], environment)


def _quietly(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
