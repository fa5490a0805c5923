"""The installed command against one lab, which all tests of this folder share."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab.places import Places
from tests.evidence import note
from tests.interrupts import INTERRUPTIBLE
from tests.labs import lab_for

ROOT = Path(__file__).parent.parent.parent
COMMAND = Path(sys.executable).with_name("gpuctl")
DIRECT = {"access": "elastic-ip"}
"""The network of a test to which the bastion does not matter: one machine less boots."""
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]
READ_LEASE_END = "sed -n 's/^OnCalendar=//p' /etc/systemd/system/gpuctl-lifetime.timer"


@dataclass(frozen=True)
class Gpuctl:
    """The command with its own state folder and its own lab: `--lab` means that one."""

    home: Path
    lab: Places

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "XDG_STATE_HOME": str(self.home),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def state(self) -> Path:
        """The folder of the lab's clusters and runs."""
        return self.home / "gpuctl" / "labs" / self.lab.name

    def clusters(self) -> set[str]:
        """The names of the clusters that have a record."""
        return {path.parent.name for path in self.state.glob("clusters/*/cluster.json")}

    @property
    def program(self) -> str:
        """How commands begin that messages show."""
        return " ".join(("gpuctl", *self.lab.options))

    def words(self, *arguments: str) -> list[str]:
        """The command line."""
        if arguments[0] == "--lab":
            return [str(COMMAND), *self.lab.options, *arguments[1:]]
        chosen = self.lab.options if arguments[0] == "lab" else ()
        return [str(COMMAND), *chosen, *arguments]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Stdout of the command, which ended with `code`."""
        done = subprocess.run(
            self.words(*arguments),
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=500,
            check=False,
        )
        note(f"$ {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout if code == 0 else done.stdout + done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The command while it runs, its output readable line by line; killed at the end."""
        with subprocess.Popen(
            [*INTERRUPTIBLE, *self.words(*arguments)],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines up to the one with `text`; fails when the output ends without it.

    What follows that line stays in the pipe: `communicate` does not see what a file has buffered.
    """
    assert process.stdout is not None
    with open(process.stdout.fileno(), "rb", buffering=0, closefd=False) as output:
        lines = []
        while line := output.readline().decode():  # unbuffered, it reads byte by byte
            lines.append(line)
            if text in line:
                return lines
    raise AssertionError(f"no line with {text!r} in:\n{''.join(lines)}")


@pytest.fixture(scope="package")
def gpuctl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpuctl]:
    """The command with a lab that is up; afterwards nothing of the lab may be left."""
    from lab.prerequisites import missing

    lacking = missing()
    if lacking and not os.environ.get("CI"):
        pytest.skip(f"the lab cannot start here: {lacking[0]}")
    command = Gpuctl(tmp_path_factory.mktemp("state"), lab_for("e2e"))
    command("lab", "stop")
    command("lab", "start")
    yield command
    command("lab", "stop")
    assert command("lab", "status", "--leftovers") == ""


@pytest.fixture(autouse=True)
def _no_cluster_of_a_failed_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clusters of a test that fails are removed: the address ranges of the next test's overlap."""
    if "gpuctl" not in request.fixturenames:
        yield
        return
    gpuctl: Gpuctl = request.getfixturevalue("gpuctl")
    before = gpuctl.clusters()
    failures = request.session.testsfailed
    yield
    if request.session.testsfailed > failures:
        for name in gpuctl.clusters() - before:
            gpuctl("--lab", "down", name, "--yes")


@pytest.fixture
def room(gpuctl: Gpuctl) -> Iterator[Callable[..., None]]:
    """`room(0, 3, 4)` limits `ZONES` to so many p4d.24xlarge until the test ends."""

    def limit(*counts: int) -> None:
        table = {zone: {"p4d.24xlarge": count} for zone, count in zip(ZONES, counts, strict=True)}
        gpuctl.lab.capacity.write_text(json.dumps(table))

    yield limit
    gpuctl.lab.capacity.unlink(missing_ok=True)


def cluster_file(folder: Path, name: str, **fields: Any) -> Path:
    """A cluster file: 2 x p4d.24xlarge unless said otherwise (JSON is YAML)."""
    path = folder / f"{name}.yaml"
    content = {"name": name, "nodes": 2, "instance_type": "p4d.24xlarge"} | fields
    path.write_text(json.dumps(content))
    return path


def lease_end(gpuctl: Gpuctl, cluster: str, node: str) -> datetime:
    """When the machine powers off by itself, as its own timer says."""
    text = gpuctl("--lab", "ssh", cluster, node, "--", READ_LEASE_END).strip()
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC)


def run_file(folder: Path, name: str, commands: list[str], **fields: Any) -> Path:
    """A run file for two nodes unless said otherwise."""
    path = folder / f"{name}-run.yaml"
    content = {"type": "task", "name": name, "nodes": 2, "commands": commands} | fields
    path.write_text(json.dumps(content))
    return path
