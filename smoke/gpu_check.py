"""`make gpu-check`: gpuctl on a machine with a real NVIDIA GPU, without AWS.

The machine becomes a cluster by `hosts:`, runs jobs, and is given back as it was: a cluster of two
nodes that share its GPUs, or of one node where the login is not root. All that it printed is in one
file, without serial numbers, UUIDs and names.
"""

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from engine.plan.modes.nccl_tests import FOLDERS
from smoke.two_nodes import two_nodes

CLUSTER = "gpu-check"
NO_GPU = 77
"""The exit code where there is nothing to check, as automake's tests have it."""

RECORD = Path("gpu-check.json")
SOURCE = "https://github.com/NVIDIA/nccl-tests"
BUILT = "$(ls -d /var/lib/gpuctl /var/tmp/gpuctl-* 2> /dev/null | head -n 1)/nccl-tests"
"""In gpuctl's folder on the node, for a shell: `down` removes it."""
HERE = f"name: {CLUSTER}\nhosts: [{{address: localhost}}]\n"
GPUCTL = str(Path(sys.executable).with_name("gpuctl"))

Verdict = Literal["fine", "failed", "left out"]


class Failed(Exception):
    """The reason for which a step failed."""


class LeftOut(Exception):
    """The reason for which a step cannot be done on this machine."""


@dataclass
class Step:
    """A step as it was taken: its verdict and why, and what its commands printed."""

    title: str
    verdict: Verdict = "fine"
    why: str = ""
    output: str = ""


@dataclass
class Site:
    """The folder of the files that the steps write, and the record of the step in progress."""

    folder: Path
    nodes: int = 1
    private: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)

    def gpuctl(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        """Run the command, record what it printed, and return its stdout.

        Raises Failed if its exit code is not in `codes`.
        """
        print(f"\n$ gpuctl {' '.join(words)}", flush=True)
        done = subprocess.run(
            [GPUCTL, *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        shown = f"{done.stdout}{done.stderr}"
        print(shown, end="", flush=True)
        self.steps[-1].output += f"$ gpuctl {' '.join(words)}\n{anonymous(shown, self.private)}"
        if done.returncode not in codes:
            last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
            raise Failed(f"exit code {done.returncode}: {last}")
        return done.stdout

    def run(self, name: str, text: str, codes: Sequence[int] = (0,)) -> str:
        """Write the run file, run it on the cluster, and return what was printed."""
        file = self.folder / f"{name}.yaml"
        file.write_text(text)
        return self.gpuctl("run", file.name, "--cluster", CLUSTER, codes=codes)

    def on_node(self, command: str, otherwise: str) -> str:
        """Return what the command prints on the node; LeftOut(otherwise) if it fails there."""
        done = subprocess.run(
            [GPUCTL, "exec", CLUSTER, "--json", "--", command],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        answer = json.loads(done.stdout)["node0"] if done.stdout else {"stderr": done.stderr}
        said = f"$ {command}\n{answer.get('stdout', '')}{answer.get('stderr', '')}"
        self.steps[-1].output += anonymous(said, self.private)
        if answer.get("exit_status") != 0:
            raise LeftOut(otherwise)
        return str(answer["stdout"])

    def take(self, title: str, act: "Callable[[Site], None]") -> Step:
        """Take the step, and print its verdict."""
        step = Step(title)
        self.steps.append(step)
        try:
            act(self)
        except Failed as error:
            step.verdict, step.why = "failed", anonymous(str(error), self.private)
        except LeftOut as error:
            step.verdict, step.why = "left out", anonymous(str(error), self.private)
        print(f"-- {title}: {step.verdict}{f': {step.why}' if step.why else ''}", flush=True)
        return step


def anonymous(text: str, private: Sequence[str] = ()) -> str:
    """Return the text without UUIDs and serial numbers of GPUs, and without the private names."""
    text = re.sub(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1-UUID", text)
    text = re.sub(r"(?i)(serial[ _a-z]*\s*[:>]\s*)[0-9A-Z]{6,}", r"\1SERIAL", text)
    text = re.sub(r"(?i)(pdi\s*[:>]\s*)0x[0-9a-f]+", r"\1PDI", text)
    for name in private:
        text = re.sub(rf"\b{re.escape(name)}\b", "HOST", text)
    return text


def examine(site: Site) -> None:
    """Ask nvidia-smi for everything, as text and as XML."""
    site.on_node("nvidia-smi -q && nvidia-smi -q -x", "nvidia-smi does not answer")


def check_health(site: Site) -> None:
    """Let `gpuctl health` judge the node: it ends with 1 if one is not fit for jobs."""
    site.gpuctl("health", CLUSTER, "--json")


def measure(site: Site) -> None:
    """Run all_reduce_perf on one GPU; build nccl-tests first if the node has none."""
    places = " ".join(f"{folder}/all_reduce_perf" for folder in FOLDERS)
    try:
        site.on_node(f"ls {places} 2> /dev/null | grep .", "")
    except LeftOut:
        site.on_node(
            "command -v nvcc make git",
            "nccl-tests is not there, nor nvcc, make and git to build it",
        )
        site.on_node(
            f"built={BUILT}; git clone --quiet --depth 1 {SOURCE} $built"
            " && make -C $built -j8 > /dev/null",
            "nccl-tests could not be built",
        )
    program = f"$(ls {places} {BUILT}/build/all_reduce_perf 2> /dev/null | head -n 1)"
    printed = site.run(
        "nccl", f"type: task\nname: nccl\nnodes: 1\ncommands: ['{program} -b 8 -e 64M -f 2 -g 1']\n"
    )
    if "Average bus bandwidth" not in printed:
        raise Failed("gpuctl read no table of nccl-tests")


DDP = """\
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

os.environ["NCCL_HOSTID"] = os.environ["GROUP_RANK"]  # NCCL refuses two ranks of a host on one GPU
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(torch.nn.Linear(4096, 4096).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end = time.monotonic() + float(sys.argv[1])
while True:
    loss = model(torch.randn(4096, 4096, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if time.monotonic() > end:
        break
if len(sys.argv) > 2:
    os.kill(os.getpid(), signal.SIGKILL)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
"""


def _torchrun(site: Site, name: str, arguments: str, codes: Sequence[int]) -> str:
    has_torch = "python3 -c 'import torch; assert torch.cuda.is_available()'"
    site.on_node(has_torch, "python3 of the node has no PyTorch that sees a GPU")
    (site.folder / "ddp.py").write_text(DDP)
    text = f"type: torchrun\nname: {name}\nnodes: {site.nodes}\nfiles: [ddp.py]\n"
    return site.run(name, f"{text}commands: ['ddp.py {arguments}']\n", codes)


def train(site: Site) -> None:
    """Run steps of DDP under torchrun for 20 seconds; the metrics have to show work and memory."""
    _torchrun(site, "ddp", "20", (0,))
    for node in json.loads(site.gpuctl("top", "ddp", "--json"))["nodes"]:
        if not any((gpu.get("percent") or 0) > 0 for gpu in node["gpus"]):
            raise Failed(f"the metrics of {node['name']} show no GPU at work")
        if not any((gpu.get("memory_bytes") or 0) > 0 for gpu in node["gpus"]):
            raise Failed(f"the metrics of {node['name']} show no memory of a GPU in use")


def kill_a_rank(site: Site) -> None:
    """Let the first rank get SIGKILL; the run has to fail and to name it."""
    printed = _torchrun(site, "killed", "1 kill", range(1, 256))
    if "rank 0" not in printed or "SIGKILL" not in printed:
        raise Failed("the verdict does not name rank 0 and SIGKILL")


def read_kernel_log(site: Site) -> None:
    """Read the lines of the kernel's log in which the driver reports errors (Xid)."""
    lines = "dmesg > /dev/null && { dmesg | grep 'NVRM: Xid' || true; }"
    site.on_node(lines, "the kernel's log may not be read there")


STEPS: tuple[tuple[str, Callable[[Site], None]], ...] = (
    ("nvidia-smi", examine),
    ("health", check_health),
    ("nccl-tests", measure),
    ("DDP under torchrun, and its metrics", train),
    ("a killed rank is named", kill_a_rank),
    ("the kernel's log", read_kernel_log),
)


def check(hosts: str, record: Path, nodes: int = 1) -> int:
    """Take the steps on the hosts, write the record, and return the exit code.

    0 if no step failed, 1 if one did. The hosts are given back also after Ctrl-C.
    """
    with tempfile.TemporaryDirectory(prefix="gpuctl-gpu-check-") as folder:
        site = Site(Path(folder), nodes, private=(socket.gethostname(), socket.getfqdn()))
        (site.folder / "hosts.yaml").write_text(hosts)
        up = ("up", "hosts.yaml", "--yes", "--accept-new-host-keys")
        try:
            first = site.take("up", lambda site: _ignore(site.gpuctl(*up)))
            for title, act in STEPS if first.verdict == "fine" else ():
                site.take(title, act)
        finally:
            site.take("down", lambda site: _ignore(site.gpuctl("down", CLUSTER, "--yes")))
            document = {
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "steps": [asdict(step) for step in site.steps],
            }
            record.write_text(json.dumps(document, indent=2) + "\n")
            print(f"\nWritten: {record}", flush=True)
    return int(any(step.verdict == "failed" for step in site.steps))


def check_this_machine(record: Path) -> int:
    """Take the steps on this machine: as two nodes where it can be two, else as one."""
    with ExitStack() as end:
        try:
            hosts, nodes = end.enter_context(two_nodes(CLUSTER)), 2
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"gpu-check: this machine is one node: {error}", file=sys.stderr)
            hosts, nodes = HERE, 1
        return check(hosts, record, nodes)


def _ignore(_: str) -> None:
    """Do nothing with what a command printed: it is in the record."""


def main() -> int:
    """Check this machine, or the host of a file; return the exit code."""
    parser = argparse.ArgumentParser(prog="make gpu-check", description=__doc__)
    parser.add_argument(
        "--hosts", type=Path, help=f"a cluster file named {CLUSTER} of one host; default: localhost"
    )
    parser.add_argument("--record", type=Path, default=RECORD, help="the file to write")
    arguments = parser.parse_args()
    if arguments.hosts is None and shutil.which("nvidia-smi") is None:
        print("gpu-check: this machine has no NVIDIA GPU: it has no nvidia-smi", file=sys.stderr)
        return NO_GPU
    if arguments.hosts is None:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        if not listed.stdout.startswith("GPU "):
            said = (listed.stdout + listed.stderr).strip()
            print(f"gpu-check: nvidia-smi lists no GPU: {said}", file=sys.stderr)
            return NO_GPU
    try:
        if arguments.hosts is not None:
            return check(arguments.hosts.read_text(), arguments.record)
        return check_this_machine(arguments.record)
    except KeyboardInterrupt:
        print("gpu-check: interrupted; the record has what was done", file=sys.stderr)
        return 130
    except OSError as error:
        print(
            f"gpu-check: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
