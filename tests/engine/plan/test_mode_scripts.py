"""The scripts of launcher modes, run by bash with programs that tell how they were called."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.contract.plan import LaunchPlan
from tests.engine.plan.test_modes import planned

RUN = "job-000001"
FOLDER = f"/var/lib/gpuctl/runs/{RUN}"
TELLS = 'echo "${0##*/} $*"\n'


class Node:
    """A node's folder of the run, and a PATH with nothing but bash and what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, folder / "path"
        self.programs.mkdir()
        self.has("bash", "", '/bin/bash "$@"\n')
        self.has("mkfifo", "", f'rm -f "${{@: -1}}"; {shutil.which("mkfifo")} "$@"\n')
        self.has("rm", "", f'{shutil.which("rm")} "$@"\n')

    def has(self, name: str, version: str = "", body: str = TELLS) -> None:
        answer = f'if [ "$1" = --version ]; then echo "{version}"; exit; fi\n' if version else ""
        program = self.programs / name
        program.write_text(f"#!/bin/bash\n{answer}{body}")
        program.chmod(0o755)

    def runs(self, plan: LaunchPlan, rank: int = 0, **environment: str) -> tuple[int, list[str]]:
        """The script's status, and its lines on both streams."""
        return self.execute(self.here(plan.nodes[rank].script), plan, rank, **environment)

    def execute(
        self, script: str, plan: LaunchPlan, rank: int, **environment: str
    ) -> tuple[int, list[str]]:
        output = self.folder / "output"
        with output.open("w") as file:
            job = subprocess.Popen(
                ["/bin/bash", "-c", script],
                env={**plan.nodes[rank].environment, **environment, "PATH": str(self.programs)},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status = job.wait()
        with contextlib.suppress(ProcessLookupError):  # as the worker does with what is left
            os.killpg(job.pid, signal.SIGKILL)
        return status, output.read_text().replace(str(self.folder), "<run>").splitlines()

    def write_files(self, plan: LaunchPlan, rank: int = 0) -> None:
        for path, text in plan.nodes[rank].files.items():
            Path(self.here(path)).write_text(self.here(text))

    def here(self, text: str) -> str:
        return text.replace(FOLDER, str(self.folder))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("program", "version", "agent"),
    [
        ("mpirun", "mpirun (Open MPI) 4.1.7", "--mca plm_rsh_agent <run>/bin/ssh"),
        ("mpirun.openmpi", "mpirun.openmpi (OpenRTE) 4.1.4", "--mca plm_rsh_agent <run>/bin/ssh"),
        ("mpirun", "mpirun (Open MPI) 5.0.11", "--prtemca plm_ssh_agent <run>/bin/ssh"),
    ],
)
def test_open_mpi_is_told_apart(node: Node, program: str, version: str, agent: str) -> None:
    node.has("mpiexec", "HYDRA build details:")
    node.has(program, version)
    own = {"OMPI_MCA_btl_base_verbose": "1", "PMIX_MCA_gds": "hash", "PRTE_MCA_rmaps": "seq"}
    assert node.runs(planned(network="none", env={"A": "1", **own})) == (
        0,
        [
            f"{program} {agent} --allow-run-as-root --hostfile <run>/hostfile -np 16"
            " --map-by slot --bind-to none -x A"
            " bash <run>/rank.sh"
        ],
    )


@pytest.mark.parametrize(
    ("implementation", "program", "version", "pin"),
    [
        ("mpich", "mpiexec.hydra", "HYDRA build details:", "-bind-to numa"),
        ("intel", "mpiexec", "Intel(R) MPI Library for Linux* OS", "-genv I_MPI_PIN_DOMAIN numa"),
    ],
)
def test_hydra_carries_no_environment(
    node: Node, implementation: str, program: str, version: str, pin: str
) -> None:
    node.has("mpirun", "mpirun (Open MPI) 4.1.4")
    node.has(program, version)
    fields: dict[str, Any] = {
        "implementation": implementation,
        "placement": {"by": "node", "bind": "numa"},
    }
    assert node.runs(planned(**fields, mpirun_args=("-prepend-rank",))) == (
        0,
        [
            f"{program} -f <run>/hostfile -n 16 -ppn 1 -launcher ssh -launcher-exec <run>/bin/ssh"
            f" -localhost 10.213.1.10 -genvnone {pin} -prepend-rank bash <run>/rank.sh"
        ],
    )


def test_intel_mpi_is_told_to_bind_nothing(node: Node) -> None:
    """Without the setting it binds each rank to a core."""
    node.has("mpiexec", "Intel(R) MPI Library for Linux* OS")
    code, (call,) = node.runs(planned(implementation="intel"))
    assert code == 0
    assert " -genv I_MPI_PIN 0 bash " in call


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"type": "mpi"}, "Open MPI, neither on PATH nor in its usual folders"),
        (
            {"type": "mpi", "implementation": "mpich"},
            "MPICH, neither on PATH nor in its usual folders",
        ),
        (
            {"type": "mpi", "implementation": "intel"},
            "Intel MPI, neither on PATH nor in its usual folders",
        ),
        ({"type": "torchrun"}, "torchrun, and its python3 no torch.distributed.run"),
        ({"type": "horovod"}, "horovodrun"),
        ({"type": "deepspeed"}, "deepspeed"),
        ({"type": "ray"}, "ray"),
    ],
)
def test_what_is_missing_is_one_line(node: Node, fields: dict[str, Any], missing: str) -> None:
    status, lines = node.runs(planned(**fields))
    assert (status, len(lines)) == (127, 1)
    head, tail = f"gpuctl: node0 has no {missing}; install ", " in the image or on the nodes"
    assert lines[0].startswith(head)
    assert lines[0].endswith(tail)


def test_nccl_tests_run_one_after_the_other_until_one_fails(node: Node) -> None:
    program = 'for word in "$@"; do [[ "$word" = *_perf ]] && echo "$word"; done\n'
    node.has("mpirun", "mpirun (Open MPI) 4.1.4", f"{program}exit 0\n")
    for name in ("all_reduce_perf", "alltoall_perf", "broadcast_perf"):
        node.has(name)
    plan = planned(type="nccl-tests", collectives=("all_reduce", "alltoall"))
    first, second = (
        f"# gpuctl: case {number} of 2: {name} 8 B to 8 GiB"
        for number, name in ((1, "all_reduce"), (2, "alltoall"))
    )
    assert node.runs(plan) == (0, [first, "all_reduce_perf", second, "alltoall_perf"])
    node.has("mpirun", "mpirun (Open MPI) 4.1.4", f"{program}exit 3\n")
    assert node.runs(plan) == (3, [first, "all_reduce_perf"])


def test_nccl_tests_name_the_program_that_is_missing(node: Node) -> None:
    node.has("mpirun", "mpirun (Open MPI) 4.1.4")
    assert node.runs(planned(type="nccl-tests", collectives=("sendrecv",))) == (
        127,
        [
            "gpuctl: node0 has no sendrecv_perf: not on PATH, nor in /root/nccl-tests/build,"
            " /opt/nccl-tests/build, /usr/local/cuda*/efa/test-cuda*; install nccl-tests in the"
            " image or on the nodes"
        ],
    )


def rank_of_nccl_tests(
    node: Node, words: str, body: str = TELLS, **environment: str
) -> tuple[int, list[str]]:
    """What a rank of node 1 does with these words of the head's script."""
    node.has("all_reduce_perf", "", body)
    plan = planned(type="nccl-tests")
    script = node.here(plan.nodes[1].files[f"{FOLDER}/rank.sh"])
    return node.execute(f"set -- {words}\n{script}", plan, 1, **environment)


def test_a_rank_of_nccl_tests_gets_variables_and_flags(node: Node) -> None:
    body = 'echo "$* $NCCL_ALGO $NCCL_PROTO"\n'
    words = "3 all NCCL_ALGO=Ring 'NCCL_PROTO=LL,A=b c' all_reduce_perf -b 1M -d half"
    assert rank_of_nccl_tests(node, words, body) == (0, ["-b 1M -d half Ring LL,A=b c"])


@pytest.mark.parametrize(("size", "status"), [("2", 0), ("16", 1)])
def test_a_rank_of_a_part_of_the_nodes_knows_how_many_it_belongs_to(
    node: Node, size: str, status: int
) -> None:
    told = ["all_reduce_perf -b 8"]
    if status:
        told = ["gpuctl: the launcher started 16 ranks, 2 were planned"]
    words = "1 2 all_reduce_perf -b 8"
    assert rank_of_nccl_tests(node, words, OMPI_COMM_WORLD_SIZE=size) == (status, told)


@pytest.mark.parametrize(("rank", "asked"), [("0", True), ("3", False)])
def test_the_first_rank_asks_for_json_where_the_program_has_it(
    node: Node, rank: str, asked: bool
) -> None:
    usage = "[-J,--output_file <file> write output to filepath, if accessible.]"
    (node.programs / "timeout").symlink_to(str(shutil.which("timeout")))
    body = f'if [ "$1" = -h ]; then echo "{usage}"; else echo "$*"; fi\n'
    found = rank_of_nccl_tests(node, "12 all all_reduce_perf -b 8", body, OMPI_COMM_WORLD_RANK=rank)
    json = " -J <run>/nccl-tests-12-all_reduce_perf.json"
    assert found == (0, ["-b 8" + (json if asked else "")])


def test_torchrun_or_its_module(node: Node) -> None:
    plan = planned(type="torchrun")
    node.has("python3", "", '[ "$1" = -c ] || echo "python3 $*"\n')
    assert node.runs(plan) == (
        0,
        ["python3 -m torch.distributed.run --no_python bash <run>/rank.sh"],
    )
    node.has("torchrun")
    assert node.runs(plan) == (0, ["torchrun --no_python bash <run>/rank.sh"])


TELLS_ENVIRONMENT = (
    'echo "$*"\necho "${MOTTO-unset} ${TOKEN-unset} $HOROVOD_START_TIMEOUT$PDSH_SSH_ARGS"\n'
)


@pytest.mark.parametrize(
    ("kind", "program", "own", "command"),
    [
        ("horovod", "horovodrun", "HOROVOD_START_TIMEOUT", "-np 16 -H 10.213.1.10:8,10.213.1.11:8"),
        (
            "deepspeed",
            "deepspeed",
            "PDSH_SSH_ARGS",
            "--hostfile <run>/hostfile --launcher pdsh --master_addr 10.213.1.10"
            " --master_port 29500 --no_python --no_local_rank",
        ),
    ],
)
def test_launchers_do_not_know_what_they_would_tell(
    node: Node, kind: str, program: str, own: str, command: str
) -> None:
    node.has(program, "", TELLS_ENVIRONMENT)
    node.has("pdsh")
    env = {"MOTTO": "two words", "TOKEN": {"secret": "TOKEN"}, own: "60"}
    assert node.runs(planned(type=kind, env=env), TOKEN="hunter22") == (
        0,
        [f"{command} <run>/bin/with-env bash <run>/rank.sh", "unset unset 60"],
    )


def test_a_launcher_keeps_what_programs_are_found_by() -> None:
    found_by = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "HOME")
    env = dict.fromkeys((*found_by, "MOTTO"), "x")
    script = planned(type="horovod", network="none", env=env).nodes[0].script
    assert [line for line in script.splitlines() if line.startswith("unset ")] == ["unset MOTTO"]


def test_deepspeeds_file_has_plain_values_of_the_network_alone() -> None:
    env = {
        "FI_A": "efa",
        "GLOO_A": "ens32",
        "NCCL_A": "plain:1",
        "OFI_A": "aZ09_./:,@%+^-",
        "NCCL_B": "two words",
        "NCCL_C": "$X",
        "NCCL_D": {"secret": "D"},
        "NCCL_E": "head",
        "PASSWORD": "plain",
    }
    roles = {"launcher": {}, "worker": {"env": {"NCCL_E": "work"}}}
    plan = planned(type="deepspeed", network="none", env=env, roles=roles)
    path = plan.nodes[0].environment["DS_ENV_FILE"]
    assert {node.files[path] for node in plan.nodes} == {
        "FI_A=efa\nGLOO_A=ens32\nNCCL_A=plain:1\nOFI_A=aZ09_./:,@%+^-\n"
    }


@pytest.mark.parametrize("commands", [("exit 4",), ("true",)])
def test_ray_is_stopped_and_the_commands_status_is_the_jobs(
    node: Node, commands: tuple[str, ...]
) -> None:
    plan = planned(type="ray", commands=commands)
    node.has("ray", "", f'echo "ray $*" >> {node.folder}/calls\n')
    node.has("python3", "", "true\n")
    for path, text in plan.nodes[0].files.items():
        Path(node.here(path)).write_text(text)
    assert node.runs(plan) == (4 if commands == ("exit 4",) else 0, [])
    assert (node.folder / "calls").read_text().splitlines() == [
        'ray start --head --port 6379 --node-ip-address 10.213.1.10 --resources {"Rank:0": 1,'
        ' "head": 1} --disable-usage-stats --dashboard-host 0.0.0.0 --dashboard-port 8265',
        "ray stop",
    ]
    assert node.runs(plan, rank=1) == (0, [])
    assert (node.folder / "calls").read_text().splitlines()[-1] == (
        "ray start --address 10.213.1.10:6379 --node-ip-address 10.213.1.11 --resources"
        ' {"Rank:1": 1, "worker": 1} --block'
    )


def test_a_ray_worker_that_its_head_did_not_see_in_time_starts_once_more(node: Node) -> None:
    plan = planned(type="ray")
    node.has("ray", "", f'echo "$*" >> {node.folder}/calls; [ "$1" = stop ] || exit 3\n')
    tries = [f"gpuctl: Ray ended with 3 after 0 s (try {number} of 2)" for number in (1, 2)]
    assert node.runs(plan, rank=1) == (3, tries)
    calls = (node.folder / "calls").read_text().splitlines()
    assert [" ".join(call.split()[:2]) for call in calls] == [
        "start --address",
        "stop --force",
        "start --address",
        "stop --force",
    ]


def test_ray_is_ready_when_it_has_started_on_the_head_and_not_before(node: Node) -> None:
    plan = planned(type="ray", commands=("true",))
    assert plan.ready is not None
    assert plan.ready.command is not None
    is_ready = node.here(plan.ready.command)
    node.has("python3", "", "true\n")
    node.has("ray", "", f'{is_ready} && echo "ready before"; exit 3\n')
    (node.folder / "ray-started").touch()  # an earlier attempt's
    assert node.runs(plan) == (3, [])
    node.has("ray", "", "true\n")
    node.write_files(plan)
    assert node.runs(plan) == (0, [])
    assert subprocess.run(is_ready, shell=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("kind", "variables", "told"),
    [
        ("mpi", {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "16"}, "3 16"),
        ("mpi", {"PMI_RANK": "0", "PMI_SIZE": "2"}, "0 2"),
        ("torchrun", {"RANK": "5", "WORLD_SIZE": "16"}, "5 16"),
        ("horovod", {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"}, "1 4"),
        ("horovod", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, "1 4"),
        ("deepspeed", {"RANK": "7", "WORLD_SIZE": "8"}, "7 8"),
    ],
)
def test_a_rank_tells_itself_before_its_commands(
    node: Node, kind: str, variables: dict[str, str], told: str
) -> None:
    fifo = node.folder / "ranks"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR)
    try:
        plan = planned(type=kind, commands=("exit 5",))
        node.write_files(plan)
        script = (node.folder / "rank.sh").read_text()
        assert node.execute(script, plan, 0, **variables) == (5, [])
        assert os.read(reader, 100).decode() == f"{told}\n"
    finally:
        os.close(reader)


def test_a_rank_waits_for_nobody_who_listens(node: Node) -> None:
    os.mkfifo(node.folder / "ranks")
    plan = planned(commands=("exit 5",))
    script = node.here(plan.nodes[0].files[f"{FOLDER}/rank.sh"])
    assert node.execute(script, plan, 0) == (5, [])


@pytest.mark.parametrize(
    "commands", [("exit 5",), ("trap : EXIT", "exit 5"), ("exec sh -c 'exit 5'",)]
)
@pytest.mark.parametrize("kind", ["horovod", "deepspeed", "torchrun"])
def test_a_rank_that_fails_ends_its_nodes_job_while_the_launcher_waits(
    node: Node, kind: str, commands: tuple[str, ...]
) -> None:
    plan = planned(type=kind, commands=commands)
    node.write_files(plan)
    rank = node.folder / "rank.sh"
    os.mkfifo(node.folder / "ranks")
    node.has("sh", "", '/bin/sh "$@"\n')
    launcher = {"horovod": "horovodrun"}.get(kind, kind)
    node.has("pdsh")
    node.has("sleep", "", f'exec {shutil.which("sleep")} "$@"\n')
    node.has(launcher, "", f"bash {rank}\nsleep 60\n")
    assert node.runs(plan) == (5, [])


@pytest.mark.parametrize("kind", ["horovod", "deepspeed"])
def test_a_node_that_waits_ends_with_its_rank(node: Node, kind: str) -> None:
    plan = planned(type=kind)
    fifo = node.folder / "failed"
    node.has("fail", "", f"while [ ! -p {fifo} ]; do :; done; echo 9 >{fifo}\n")
    script = f"fail &\n{node.here(plan.nodes[1].script)}"
    assert node.execute(script, plan, 1) == (9, [])
