"""Every type of run with the real launchers and frameworks, by the run files of `stacks/`.

One cluster of three nodes that boots the lab's image `frameworks`. What a rank prints names its
node, so that the output tells where the ranks were.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.amis import FAMILIES
from lab.images.image import image_path
from tests.e2e.conftest import ROOT, Gpuctl, run_file

pytestmark = pytest.mark.lab

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
    prefix = r"\[\d+\] (?:[\d.]+: |\[\d+\]<stdout>:)?"
    return sorted(re.findall(rf"^{prefix}({word} .*)$", output, re.MULTILINE))


def run(gpuctl: Gpuctl, file: str | Path, code: int = 0) -> str:
    return gpuctl("--lab", "run", str(file), "--cluster", CLUSTER, code=code)


def test_the_stacks_cluster_boots_the_labs_own_image() -> None:
    ami = next(family for family in FAMILIES if family.flavour == "frameworks")
    text = (ROOT / f"stacks/{CLUSTER}.yaml").read_text()
    assert f"\nimage: {ami.ami_id('us-east-1')}\n" in text


@pytest.mark.parametrize(
    ("stack", "library"),
    [
        ("mpi", "Open MPI v4.1.4"),
        ("mpi-openmpi5", "Open MPI v5.0.11"),
        ("mpi-mpich", "MPICH Version:      5.0.2"),
        ("mpi-intel", "Intel(R) MPI Library 2021.19.0 for Linux* OS"),
    ],
)
def test_mpi(gpuctl: Gpuctl, hosts: list[str], stack: str, library: str) -> None:
    output = run(gpuctl, f"stacks/{stack}.yaml")
    assert said(output) == [
        f"rank {rank} of 4 on {hosts[rank // 2]}: sum 6, {library}" for rank in range(4)
    ]


def test_nccl_tests(gpuctl: Gpuctl, hosts: list[str]) -> None:
    output = run(gpuctl, "stacks/nccl-tests.yaml")
    devices = re.findall(r"#\s+Rank\s+(\d+) .* on (\S+) device", output)
    assert devices == 2 * [("0", hosts[0]), ("1", hosts[1])]
    assert output.count("Out of bounds values : 0 OK") == 2


def test_ddp(gpuctl: Gpuctl, hosts: list[str]) -> None:
    output = run(gpuctl, "stacks/ddp.yaml")
    assert said(output) == [f"rank {n} of 2 on {hosts[n]}: weight 3.0" for n in (0, 1)]


def test_torchrun_takes_as_many_nodes_as_there_are(gpuctl: Gpuctl, hosts: list[str]) -> None:
    lines = said(run(gpuctl, "stacks/torchrun.yaml"))
    assert [line.split(",")[0] for line in lines] == [f"rank {n} of 6" for n in range(6)]
    places = sorted(line.partition(", ")[2] for line in lines)
    assert places == sorted(f"{n} on {host}: weight 3.0" for host in hosts for n in (0, 1))


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


def test_horovod(gpuctl: Gpuctl, hosts: list[str]) -> None:
    output = run(gpuctl, "stacks/horovod.yaml")
    assert said(output) == [
        f"rank {rank} of 4 on {hosts[rank // 2]}: weight 3.0" for rank in range(4)
    ]


def test_deepspeed(gpuctl: Gpuctl, hosts: list[str]) -> None:
    output = run(gpuctl, "stacks/deepspeed.yaml")
    assert said(output) == [
        f"rank {rank} of 4, {rank % 2} on {hosts[rank // 2]}: sum 6" for rank in range(4)
    ]


def test_ps_worker(gpuctl: Gpuctl, hosts: list[str]) -> None:
    output = run(gpuctl, "stacks/ps-worker.yaml")
    assert said(output, "ps") == [f"ps 0 on {hosts[0]} serves"]
    assert said(output, "worker") == [f"worker {n} on {hosts[n + 1]}: weight 3.0" for n in (0, 1)]


def test_ray(gpuctl: Gpuctl, hosts: list[str]) -> None:
    output = run(gpuctl, "stacks/ray.yaml")
    pinned = re.findall(r"^\[0\] (Rank:\d is .*)$", output, re.MULTILINE)
    assert pinned == [f"Rank:{rank} is {host}" for rank, host in enumerate(hosts)]


ODD = "a  'quoted' \"word\"; $HOME `id` \\n\tand\nGrüße, 世界 %s &"
SECRET = "correct-horse-battery-staple"
RANKS = {
    "task": 2,
    "mpi": 4,
    "mpi-openmpi5": 4,
    "mpi-mpich": 4,
    "mpi-intel": 4,
    "ddp": 2,
    "torchrun": 4,
    "horovod": 4,
    "deepspeed": 4,
    "ps-worker": 2,
    "ray": 1,
}
"""How many processes run the commands of each stack on two nodes."""


@pytest.mark.parametrize("stack", RANKS)
def test_variables_and_secrets_reach_every_rank(
    gpuctl: Gpuctl,
    hosts: list[str],
    stack: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUCTL_TEST_TOKEN", SECRET)
    file = tmp_path / "odd.yaml"
    file.write_text(json.dumps(_tells_its_variables(stack)))
    output = run(gpuctl, file)
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    told = f"{json.dumps(ODD)} {digest}"
    there = hosts[:1] if stack == "ray" else hosts[:2]
    each = RANKS[stack] // len(there)
    assert said(output, "told") == sorted(f"told {host} {told}" for host in there * each)
    assert said(output, "token") == ["token *** 0"] * RANKS[stack]


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


_UNTIL_SERVED = (
    "timeout 300 bash -c"
    " 'until (: < /dev/tcp/$GPUCTL_MASTER_NODE_IP/2222) 2> /dev/null; do sleep 0.2; done'"
)


def _tells_its_variables(stack: str) -> dict[str, Any]:
    """A run file of two nodes whose processes print a variable, and the digest of a secret.

    They also look for the secret in the arguments of all processes.
    """
    commands = [f'python3 -c "{_PROGRAM}"']
    file: dict[str, Any] = {"name": "odd", "nodes": 2, "commands": commands}
    file["env"] = {"ODD": ODD, "TOKEN": {"secret": "GPUCTL_TEST_TOKEN"}}
    if stack == "task":
        return file | {"type": "task"}
    if stack == "torchrun":  # the stack's is elastic
        return file | {"type": "torchrun", "procs_per_node": 2}
    if stack == "ddp":  # whose workers wait until somebody listens
        commands.append(
            "python3 -c 'import torch.distributed as d; d.init_process_group(\"gloo\")'"
        )
    if stack == "ps-worker":  # whose servers are stopped when the workers have ended
        serve = [*commands, "exec python3 -m http.server 2222 > /dev/null 2>&1"]
        commands.insert(0, _UNTIL_SERVED)
        file["roles"] = {"ps": {"nodes": 1, "commands": serve}, "worker": {"nodes": 1}}
    return file | {"extends": stack}


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
