"""Every type of run with the real launchers and frameworks, by the run files of `stacks/`.

One cluster of three nodes that boots the lab's image `frameworks`. What a rank prints names its
node, so that the output tells where the ranks were. Before that each process prints a variable
and what it has of a secret: a run of a stack shows both.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.amis import FAMILIES
from lab.images.image import image_path
from tests.e2e.conftest import ROOT, Gpuctl, run_file

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

CLUSTER = "frameworks"


@pytest.fixture(scope="module")
def hosts(gpuctl: Gpuctl) -> Iterator[list[str]]:
    """The cluster's host names in rank order."""
    # minutes of compiling are not this test's: they would be taken for a test that hangs
    assert image_path("frameworks").is_dir(), "the image frameworks is not made: run `make images`"
    gpuctl("--lab", "up", f"stacks/{CLUSTER}.yaml", "--yes")
    nodes = gpuctl.json("--lab", "status", CLUSTER)[0]["nodes"]
    addresses = [node["private_ip"] for node in nodes if node["name"] != "bastion"]
    yield [f"ip-{address.replace('.', '-')}" for address in addresses]
    gpuctl("--lab", "down", CLUSTER, "--yes")


def said(output: str, word: str = "rank") -> list[str]:
    """What the job's lines said that begin with `word`, sorted, without what launchers prefix."""
    prefix = r"\[(?:node\d+|rank \d+)\] (?:[\d.]+: )?"
    return sorted(re.findall(rf"^{prefix}({word} .*)$", output, re.MULTILINE))


def run(gpuctl: Gpuctl, file: str | Path, code: int = 0) -> str:
    return gpuctl("--lab", "run", str(file), "--cluster", CLUSTER, code=code)


def test_the_stacks_cluster_boots_the_labs_own_image() -> None:
    ami = next(family for family in FAMILIES if family.flavour == "frameworks")
    text = (ROOT / f"stacks/{CLUSTER}.yaml").read_text()
    assert f"\nimage: {ami.ami_id('us-east-1')}\n" in text


ODD = "a  'quoted' \"word\"; $HOME `id` \\n\tand\nGrüße, 世界 %s &"
SECRET = "correct-horse-battery-staple"

_PROGRAM = """\
import glob, hashlib, json, os, socket
token = os.environ['TOKEN']
def holds(path):
    try:
        return token in open(path, errors='replace').read()
    except OSError:
        return False
digest = hashlib.sha256(token.encode()).hexdigest()
print('told', socket.gethostname(), json.dumps(os.environ['ODD']), digest)
print('token', token, sum(map(holds, glob.glob('/proc/[0-9]*/cmdline'))))
"""

Told = Callable[[dict[str, Any], list[str]], str]


@pytest.fixture
def run_told(gpuctl: Gpuctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Run the file with a variable and a secret; return the output.

    Each process prints the variable and the secret's digest, and looks for the secret in the
    arguments of all processes, before the file's own commands. `hosts` has a name per process.
    """
    monkeypatch.setenv("GPUCTL_TEST_TOKEN", SECRET)
    digest = hashlib.sha256(SECRET.encode()).hexdigest()

    def run_file(file: dict[str, Any], hosts: list[str]) -> str:
        # Without a buffer Python writes a line and its end apart; ranks share a launcher's pipe.
        env = {"ODD": ODD, "TOKEN": {"secret": "GPUCTL_TEST_TOKEN"}, "PYTHONUNBUFFERED": ""}
        commands = [f'python3 -c "{_PROGRAM}"', *file.get("commands", ())]
        path = tmp_path / "told.yaml"
        path.write_text(json.dumps({"name": "told", **file, "env": env, "commands": commands}))
        output = run(gpuctl, path)
        told = f"{json.dumps(ODD)} {digest}"
        assert said(output, "told") == sorted(f"told {host} {told}" for host in hosts)
        assert said(output, "token") == ["token *** 0"] * len(hosts)
        return output

    return run_file


def stack_file(name: str) -> dict[str, Any]:
    """Return a run file that extends the stack and repeats its commands."""
    stack = read_stack(name)
    while "commands" not in stack:
        stack = read_stack(stack["extends"])
    return {"extends": name, "commands": stack["commands"]}


def read_stack(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / f"stacks/{name}.yaml").read_text())
    return read


def test_task(run_told: Told, hosts: list[str]) -> None:
    run_told({"type": "task", "nodes": 2}, hosts[:2])


@pytest.mark.parametrize(
    ("stack", "library"),
    [
        ("mpi", "Open MPI v4.1.4"),
        ("mpi-openmpi5", "Open MPI v5.0.11"),
        ("mpi-mpich", "MPICH Version:      5.0.2"),
        ("mpi-intel", "Intel(R) MPI Library 2021.19.0 for Linux* OS"),
    ],
)
def test_mpi(run_told: Told, hosts: list[str], stack: str, library: str) -> None:
    output = run_told(stack_file(stack), 2 * hosts[:2])
    assert said(output) == [
        f"rank {rank} of 4 on {hosts[rank // 2]}: sum 6, {library}" for rank in range(4)
    ]


def test_nccl_tests(gpuctl: Gpuctl, hosts: list[str]) -> None:
    output = run(gpuctl, "stacks/nccl-tests.yaml")
    devices = re.findall(r"#\s+Rank\s+(\d+) .* on (\S+) device", output)
    assert devices == 2 * [("0", hosts[0]), ("1", hosts[1])]
    assert output.count("Out of bounds values : 0 OK") == 2


def test_ddp(run_told: Told, hosts: list[str]) -> None:
    output = run_told(stack_file("ddp"), hosts[:2])
    assert said(output) == [f"rank {n} of 2 on {hosts[n]}: weight 3.0" for n in (0, 1)]


def test_torchrun_takes_as_many_nodes_as_there_are(gpuctl: Gpuctl, hosts: list[str]) -> None:
    lines = said(run(gpuctl, "stacks/torchrun.yaml"))
    assert [line.split(",")[0] for line in lines] == [f"rank {n} of 6" for n in range(6)]
    places = sorted(line.partition(", ")[2] for line in lines)
    assert places == sorted(f"{n} on {host}: weight 3.0" for host in hosts for n in (0, 1))


def test_torchrun_on_a_fixed_number_of_nodes(run_told: Told, hosts: list[str]) -> None:
    run_told({"type": "torchrun", "nodes": 2, "procs_per_node": 2}, 2 * hosts[:2])


def test_torchrun_starts_a_killed_rank_again(
    gpuctl: Gpuctl, hosts: list[str], tmp_path: Path
) -> None:
    file = run_file(
        tmp_path,
        "restart",
        [
            'again=again; mkdir "$GPUCTL_RUN_FOLDER/first" 2>/dev/null && again=first; true',
            "echo rank $RANK, $again",
            'if [ "$RANK $again" = "1 first" ]; then kill -9 $$; fi',
            # torch asks the others to come again as long as they run
            'if [ "$again" = first ]; then exec sleep 60; fi',
        ],
        type="torchrun",
        max_restarts=1,
    )
    assert said(run(gpuctl, file)) == [
        "rank 0, again", "rank 0, first", "rank 1, again", "rank 1, first",
    ]  # fmt: skip


def test_horovod(run_told: Told, hosts: list[str]) -> None:
    output = run_told(stack_file("horovod"), 2 * hosts[:2])
    assert said(output) == [
        f"rank {rank} of 4 on {hosts[rank // 2]}: weight 3.0" for rank in range(4)
    ]


def test_deepspeed(run_told: Told, hosts: list[str]) -> None:
    output = run_told(stack_file("deepspeed"), 2 * hosts[:2])
    assert said(output) == [
        f"rank {rank} of 4, {rank % 2} on {hosts[rank // 2]}: sum 6" for rank in range(4)
    ]


def test_ps_worker(run_told: Told, hosts: list[str]) -> None:
    output = run_told(stack_file("ps-worker"), hosts)
    assert said(output, "ps") == [f"ps 0 on {hosts[0]} serves"]
    assert said(output, "worker") == [f"worker {n} on {hosts[n + 1]}: weight 3.0" for n in (0, 1)]


def test_ray(run_told: Told, hosts: list[str]) -> None:
    output = run_told(stack_file("ray"), hosts[:1])
    pinned = re.findall(r"^\[node0\] (Rank:\d is .*)$", output, re.MULTILINE)
    assert pinned == [f"Rank:{rank} is {host}" for rank, host in enumerate(hosts)]


def test_a_secret_is_on_no_disk(gpuctl: Gpuctl, hosts: list[str]) -> None:
    pattern = SECRET.replace("-", ".")  # so that the search does not find itself
    search = f"grep -rls {pattern} /etc /home /root /run /srv /tmp /var | wc -l"
    assert gpuctl("--lab", "exec", CLUSTER, "--", search) == "--- node[0-2]\n0\n"
    holding = [
        path
        for path in gpuctl.home.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert holding == []


@pytest.mark.parametrize("stack", ["mpi", "mpi-openmpi5"])
def test_ranks_that_all_run_on_the_head_fail_the_run(
    gpuctl: Gpuctl, hosts: list[str], stack: str, tmp_path: Path
) -> None:
    head = hosts[0].removeprefix("ip-").replace("-", ".")
    file = tmp_path / "trap.yaml"
    args = ["--host", f"{head}:4", "--oversubscribe"]
    file.write_text(json.dumps({"extends": stack, "name": "trap", "mpirun_args": args}))
    output = run(gpuctl, file, code=1)
    assert "2 were planned there: the launcher ignored the hostfile" in output
