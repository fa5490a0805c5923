"""Manifests: the run file that each becomes, what its commands do, and what is said about it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.main import app
from config.errors import InvalidFiles
from config.loading.codes import CODES
from config.loading.load import check, load_cluster, load_run
from config.run.env import Secret
from config.run.run_file import Run, Task
from config.yaml.marked_yaml import read_yaml
from engine.plan.script import job_script
from formats.converted import Placed
from formats.kubernetes.container import Container
from tests import golden
from tests.engine.golden import folded, inventory_path
from tests.formats.manifest_cases import MANIFEST_CASES, NEAR_MISSES
from tests.formats.manifest_texts import (
    ALL_KEYS_OF_A_POD,
    ALL_KEYS_OF_MPIJOB,
    ALL_KEYS_OF_TRAINJOB,
    ALL_KEYS_OF_VOLCANO,
    LAUNCHER_AT,
    MPIJOB,
    MPIJOB_OF_A_LAUNCHER,
    TRAINJOB,
    VOLCANO,
    WORKER_AT,
)
from tests.formats.manifests import NAMES, manifest_path, plan_path, plan_text

AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
INTERFACES = {"OMPI_MCA_btl_tcp_if_exclude": "lo,docker0"}


def open_mpi(slots: int) -> dict[str, str]:
    return {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": str(slots),
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
        "PRTE_MCA_prte_set_default_slots": str(slots),
    }


def task(name: str) -> Task:
    run = load_run(manifest_path(name))
    assert isinstance(run, Task)
    return run


def written(folder: Path, text: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(text)
    return file


def complaints(folder: Path, text: str) -> list[str]:
    file = written(folder, text)
    return [str(one).removeprefix(f"{file}:") for one in check(file)]


def test_mpijob() -> None:
    run = task("mpijob")
    assert (run.name, run.nodes, run.max_duration) == ("all-reduce", 2, 1800)
    assert (run.startup_order, run.stop_criteria) == ("workers-first", "master-done")
    assert run.image == "nvcr.io/nvidia/pytorch:25.09-py3"
    # The launcher is on a worker's node, so its variables are laid over the worker's.
    assert run.env == {"NCCL_DEBUG": "WARN", "K_MPI_JOB_ROLE": "worker"}
    assert run.roles["master"].env == {
        **AS_ROOT,
        **INTERFACES,
        "SIZE": "8G",
        "NP": "16",
        "WHERE": "8G of 16, $(NP), $(NOBODY)",
        "HF_TOKEN": Secret(secret="HF_TOKEN"),
        "K_MPI_JOB_ROLE": "launcher",
        **open_mpi(8),
    }
    assert (run.roles["worker"].commands, run.roles["worker"].env) == (("sleep infinity",), {})
    assert run.commands[-2:] == (
        "cd -- '/opt/nccl tests'",
        'mpirun -np "$NP" -x NCCL_DEBUG=INFO --bind-to none'
        ' ./all_reduce_perf -b 8 -e "$SIZE" -f 2 -g 1',
    )


def test_mpijob_whose_launcher_is_a_worker() -> None:
    run = task("mpijob-mpich")
    assert (run.name, run.nodes) == ("pi", 2)
    assert run.env == {}
    assert run.roles["master"].env == {
        **AS_ROOT,
        **INTERFACES,
        "K_MPI_JOB_ROLE": "launcher",
        "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
    }
    assert run.roles["worker"].env == {"ONLY_ON": "workers", "K_MPI_JOB_ROLE": "worker"}
    # It has arguments alone, which go to the image's entrypoint.
    assert run.commands[-1] == (
        'set -- mpirun -n 8 /home/mpiuser/pi\neval "$GPUCTL_IMAGE_ENTRYPOINT \\"\\$@\\""'
    )


def test_mpijob_for_intel_mpi(tmp_path: Path) -> None:
    text = manifest_path("mpijob-mpich").read_text().replace("MPICH", "Intel")
    env = load_run(written(tmp_path, text)).roles["master"].env
    assert (env["I_MPI_HYDRA_HOST_FILE"], env["I_MPI_PERHOST"]) == ("/etc/mpi/hostfile", "4")


def test_above_64_nodes_open_mpi_enters_all_from_the_launcher(tmp_path: Path) -> None:
    text = manifest_path("mpijob").read_text().replace("replicas: 2", "replicas: 65")
    env = load_run(written(tmp_path, text)).roles["master"].env
    assert env["OMPI_MCA_plm_rsh_no_tree_spawn"] == env["PRTE_MCA_plm_ssh_no_tree_spawn"] == "1"
    assert env["OMPI_MCA_plm_rsh_num_concurrent"] == "65"


def test_interfaces_that_the_job_chooses_are_left_to_it(tmp_path: Path) -> None:
    text = manifest_path("mpijob").read_text()
    text = text.replace("--bind-to, none", "--mca, btl_tcp_if_include, eth0")
    env = load_run(written(tmp_path, text)).roles["master"].env
    assert not INTERFACES.keys() & env.keys()


def test_volcano_job() -> None:
    run = task("volcano")
    assert (run.name, run.nodes, run.image) == ("hello", 2, "volcanosh/example-mpi:0.0.3")
    assert (run.startup_order, run.stop_criteria) == ("workers-first", "master-done")
    assert run.env == {}
    index = {"VC_TASK_INDEX": "0", "VK_TASK_INDEX": "0"}
    assert run.roles["master"].env == {**AS_ROOT, **INTERFACES, **index}
    assert run.roles["worker"].commands == ("sleep infinity",)
    assert run.commands[-2] == "cd -- /home"


def test_volcano_job_whose_plugin_names_the_tasks() -> None:
    run = task("volcano-plugin")
    assert run.nodes == 1
    assert run.commands[-1] == 'mpiexec --host "$MPI_HOST" ./hello'


def test_trainjob_of_torch() -> None:
    run = task("trainjob-torch")
    assert (run.name, run.nodes) == ("fine-tune", 2)
    assert run.image == "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
    assert (run.env, run.roles) == ({"LR": "0.001"}, {})
    assert (run.startup_order, run.stop_criteria) == ("any", "all-done")
    assert run.commands[-1] == 'torchrun train.py --lr "$LR" --rank "$PET_NODE_RANK"'


def test_trainjob_of_deepspeed() -> None:
    run = task("trainjob-deepspeed")
    assert (run.nodes, run.image) == (2, "ghcr.io/kubeflow/trainer/deepspeed-runtime")
    assert run.env == {"EPOCHS": "3"}  # on every node, so that every rank has it
    own = {"EPOCHS": "3"}
    # As many processes on a node as the job wants GPUs of it.
    assert run.roles["master"].env == {**AS_ROOT, **INTERFACES, **own, **open_mpi(4)}


def test_trainjob_that_says_nothing_is_its_runtimes() -> None:
    run = task("trainjob-mpi")
    assert (run.nodes, run.image) == (2, "mpioperator/mpi-pi:openmpi")
    assert run.roles["master"].env == {**AS_ROOT, **INTERFACES, **open_mpi(1)}
    assert run.commands[-1] == "mpirun /home/mpiuser/pi"
    assert check(manifest_path("trainjob-mpi")) == ()


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    golden.check(plan_path(name), plan_text(name))


@pytest.mark.parametrize("name", NAMES)
def test_dry_run_prints_what_is_executed(name: str) -> None:
    options = ["--dry-run", "--json", "--inventory", str(inventory_path(2))]
    answer = CliRunner().invoke(app, ["run", str(manifest_path(name)), *options])
    assert answer.exit_code == 0, answer.output
    run_id = json.loads(answer.stdout)["run_id"]
    plan = json.loads(answer.stdout.replace(run_id, f"{run_id[:-7]}-000000"))
    assert folded(plan) == json.loads(plan_path(name).read_text())


# What stands in the launcher's place tells what it was called with and what it finds.
LAUNCHER = """\
#!/bin/bash
echo "${0##*/} $*"
env | grep -E '^(OMPI|PRTE|HYDRA|I_MPI|MPI|VC_|VK_|PET)' | sort
"""
AGENTS = """\
HYDRA_LAUNCHER=ssh
HYDRA_LAUNCHER_EXEC=/run-folder/bin/ssh
I_MPI_HYDRA_BOOTSTRAP=ssh
I_MPI_HYDRA_BOOTSTRAP_EXEC=/run-folder/bin/ssh
{}OMPI_MCA_plm_rsh_agent=/run-folder/bin/ssh
PRTE_MCA_plm_ssh_agent=/run-folder/bin/ssh
"""


def executed(run: Run, folder: Path, *, rank: int = 0, **env: str) -> str:
    """What the commands say on a node whose /etc is the folder's, with a stand-in for launchers."""
    (folder / "bin").mkdir()
    for program in ("mpirun", "mpiexec", "torchrun", "python3"):
        (folder / "bin" / program).write_text(LAUNCHER)
        (folder / "bin" / program).chmod(0o755)
    given = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "GPUCTL_RUN_FOLDER": "/run-folder",
        "GPUCTL_NODES_IPS": "10.0.0.1\n10.0.0.2",
        "GPUCTL_NODES_NUM": "2",
        "GPUCTL_NODE_RANK": str(rank),
        "GPUCTL_MASTER_NODE_IP": "10.0.0.1",
        **env,
    }
    assert isinstance(run, Task)
    script = job_script(run.commands)
    for place in ("/etc/", "/opt/nccl tests", "/home\n", "/usr/sbin/sshd", "/var/run/sshd"):
        script = script.replace(place, f"{folder}{place.replace(' ', '_')}")
    for inside in ("etc", "opt/nccl_tests", "home"):
        (folder / inside).mkdir(parents=True)
    done = subprocess.run(
        ["bash"], input=script, env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_launcher_of_an_mpijob_finds_what_the_operator_gives(tmp_path: Path) -> None:
    output = executed(task("mpijob"), tmp_path, NP="16", SIZE="8G")
    assert output == (
        "mpirun -np 16 -x NCCL_DEBUG=INFO --bind-to none ./all_reduce_perf -b 8 -e 8G -f 2 -g 1\n"
        + AGENTS.format("")
    )
    assert (tmp_path / "etc/mpi/hostfile").read_text() == "10.0.0.1 slots=8\n10.0.0.2 slots=8\n"
    hosts = subprocess.run(
        [tmp_path / "etc/mpi/discover_hosts.sh"], capture_output=True, text=True, check=True
    )
    assert hosts.stdout == "10.0.0.1\n10.0.0.2\n"


def test_a_worker_has_one_slot_unless_it_says_more(tmp_path: Path) -> None:
    executed(load_run(written(tmp_path, MPIJOB)), tmp_path)
    assert (tmp_path / "etc/mpi/hostfile").read_text() == "10.0.0.1 slots=1\n10.0.0.2 slots=1\n"


def test_the_hostfile_of_mpich(tmp_path: Path) -> None:
    executed(task("mpijob-mpich"), tmp_path)
    assert (tmp_path / "etc/mpi/hostfile").read_text() == "10.0.0.1:4\n10.0.0.2:4\n"


def test_the_master_of_a_volcano_job_finds_what_the_plugins_give(tmp_path: Path) -> None:
    output = executed(task("volcano"), tmp_path)
    assert output.splitlines()[0] == (
        "mpiexec --allow-run-as-root --host 10.0.0.1,10.0.0.2 -np 2 mpi_hello_world"
    )
    assert output.splitlines()[-4:] == [
        "VC_MPIMASTER_HOSTS=10.0.0.1",
        "VC_MPIMASTER_NUM=1",
        "VC_MPIWORKER_HOSTS=10.0.0.1,10.0.0.2",
        "VC_MPIWORKER_NUM=2",
    ]
    assert (tmp_path / "etc/volcano/mpiworker.host").read_text() == "10.0.0.1\n10.0.0.2"


def test_plugin_mpi_gives_the_hosts_as_a_variable(tmp_path: Path) -> None:
    output = executed(task("volcano-plugin"), tmp_path, GPUCTL_NODES_IPS="10.0.0.1")
    assert output.splitlines()[0] == "mpiexec --host 10.0.0.1 ./hello"
    assert "\nMPI_HOST=10.0.0.1\n" in output
    assert (tmp_path / "etc/volcano/crew_a.host").read_text() == "10.0.0.1"


def test_each_replica_of_a_task_finds_its_index(tmp_path: Path) -> None:
    output = executed(task("volcano-one-task"), tmp_path, rank=1)
    assert output.splitlines() == [
        "python3 try.py --seed 1",
        "VC_TASK_INDEX=1",
        "VC_TRIAL_HOSTS=10.0.0.1,10.0.0.2",
        "VC_TRIAL_NUM=2",
        "VK_TASK_INDEX=1",
    ]


@pytest.mark.parametrize(
    ("said", "processes"),
    [("4", "4"), ("gpu", "8"), ("cpu", "1"), ("auto", "8"), ("~", "8")],
)
def test_torchrun_finds_its_options_in_its_environment(
    tmp_path: Path, said: str, processes: str
) -> None:
    text = manifest_path("trainjob-torch").read_text().replace("PerNode: 8", f"PerNode: {said}")
    run = load_run(written(tmp_path, text))
    assert isinstance(run, Task)
    output = executed(run, tmp_path, rank=1, LR="0.001")
    assert output.splitlines() == [
        "torchrun train.py --lr 0.001 --rank 1",
        "PET_MASTER_ADDR=10.0.0.1",
        "PET_MASTER_PORT=29500",
        "PET_NNODES=2",
        "PET_NODE_RANK=1",
        f"PET_NPROC_PER_NODE={processes}",
    ]


@pytest.mark.parametrize(
    ("resources", "processes", "why"),
    [
        ("", "1", "it asks for nothing"),
        ("{limits: {nvidia.com/gpu: 4}}", "4", "the GPUs of its resources"),
        (
            "{requests: {nvidia.com/gpu: '2'}, limits: {nvidia.com/gpu: 4}}",
            "2",
            "the GPUs of its resources",
        ),
        ("{requests: {cpu: 2500m, memory: 8Gi}}", "3", "the CPUs of its resources"),
        ("{requests: {memory: 8Gi}, limits: {cpu: 6}}", "6", "the CPUs of its resources"),
        ("{limits: {cpu: 6, nvidia.com/gpu.shared: 1}}", "1", "the GPUs of its resources"),
    ],
)
def test_torchrun_starts_what_kubeflow_starts(
    tmp_path: Path, resources: str, processes: str, why: str
) -> None:
    asked = f"    resourcesPerNode: {resources}\n" if resources else ""
    text = TRAINJOB.replace("[train]", "[torchrun, train.py]") + asked
    assert complaints(tmp_path, text) == [
        f"7:5: W209 'spec.trainer' starts {processes} process{'' if processes == '1' else 'es'} per"
        f" node, as in Kubeflow: {why}; write 'numProcPerNode' for another number of processes"
    ]
    run = load_run(written(tmp_path, text))
    assert isinstance(run, Task)
    assert f"PET_NPROC_PER_NODE={processes} " in run.commands[0]


def test_a_job_that_gives_torchrun_a_number_gets_no_line_about_it(tmp_path: Path) -> None:
    own = TRAINJOB.replace("[train]", "[torchrun, --nproc-per-node=8, train.py]")
    assert complaints(tmp_path, own) == []
    assert complaints(tmp_path, TRAINJOB) == []


def expanded(word: str, env: dict[str, str]) -> str:
    """Kubernetes' rule, letter by letter."""
    found, rest = "", word
    while rest:
        letter, rest = rest[0], rest[1:]
        if letter == "$" and rest.startswith("$"):
            rest = rest[1:]
        elif letter == "$" and rest.startswith("(") and ")" in rest:
            name, _, rest = rest[1:].partition(")")
            letter = env.get(name, f"$({name})")  # it may be anything but a parenthesis that closes
        found += letter
    return found


PIECES = ["$", "(", ")", "A", "B", "$(A)", "$(B)", "$(C)", "'", '"', "\\", "`", " ", "*", "é", "\n"]
WORDS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


@settings(max_examples=60)
@example(["$(A", "$($(A)"], "")
@given(st.lists(WORDS, min_size=1, max_size=4), WORDS)
def test_words_reach_the_program_as_kubernetes_gives_them(words: list[str], value: str) -> None:
    env = {"A": value, "B": "b"}
    placed: dict[str, Placed] = {name: Placed(text, ()) for name, text in env.items()}
    container = Container((), None, placed, ("printf", "%s\\0", *words), (), "")
    (line,) = container.commands(())
    done = subprocess.run(
        ["bash"], input=line.encode(), env=env, capture_output=True, check=True
    ).stdout
    assert done.decode().split("\0")[:-1] == [expanded(word, env) for word in words]


@pytest.mark.parametrize(("text", "lines"), MANIFEST_CASES)
def test_complaints(tmp_path: Path, text: str, lines: list[str]) -> None:
    assert complaints(tmp_path, text) == lines


@pytest.mark.parametrize(("text", "line"), NEAR_MISSES)
def test_a_near_miss_is_an_error_that_names_the_field(tmp_path: Path, text: str, line: str) -> None:
    assert line in complaints(tmp_path, text)
    with pytest.raises(InvalidFiles):
        load_run(written(tmp_path, text))


@pytest.mark.parametrize("text", [MPIJOB, TRAINJOB, VOLCANO])
def test_the_shortest_manifests_have_nothing_to_complain_of(tmp_path: Path, text: str) -> None:
    assert complaints(tmp_path, text) == []


@pytest.mark.parametrize(
    "text",
    [
        *(ALL_KEYS_OF_MPIJOB, ALL_KEYS_OF_TRAINJOB, ALL_KEYS_OF_VOLCANO, ALL_KEYS_OF_A_POD),
        MPIJOB_OF_A_LAUNCHER,
    ],
)
def test_keys_that_are_carried_out_or_not_needed_are_not_ignored_aloud(
    tmp_path: Path, text: str
) -> None:
    assert complaints(tmp_path, text) == []


@pytest.mark.parametrize("as_worker", ["", "  runLauncherAsWorker: true\n"])
def test_an_mpijob_without_workers_is_its_launcher(tmp_path: Path, as_worker: str) -> None:
    text = MPIJOB_OF_A_LAUNCHER.replace("spec:\n", "spec:\n" + as_worker, 1)
    run = load_run(written(tmp_path, text))
    assert isinstance(run, Task)
    assert run.nodes == 1
    assert run.commands[-1] == "mpirun ./pi"


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (MPIJOB, 2),
        (MPIJOB.replace("spec:\n", "spec:\n  runLauncherAsWorker: true\n", 1), 3),
        (TRAINJOB, 1),
        (TRAINJOB.replace("torch-distributed", "deepspeed-distributed"), 1),
        (TRAINJOB.replace("torch-distributed", "mpi-distributed"), 2),
        (TRAINJOB + "    numNodes: 4\n", 4),
        (VOLCANO, 2),
        (VOLCANO.replace("      replicas: 2\n", ""), 1),
        (VOLCANO[: VOLCANO.index("    - name: two")], 1),
    ],
)
def test_how_many_nodes_a_manifest_takes(tmp_path: Path, text: str, nodes: int) -> None:
    assert load_run(written(tmp_path, text)).nodes == nodes


@pytest.mark.parametrize(
    ("command", "slots", "ranks"),
    [
        ("[mpirun, -np, '16', ./a]", 4, ("-np", 16)),
        ("[bash, -c, 'cd /x && mpirun --allow-run-as-root -n 9 ./a']", 4, ("-n", 9)),
        ("[horovodrun, -np, '4', python, a.py]", 1, ("-np", 4)),
        ("[bash, -c, 'N=12; mpirun -np $N ./a']", 4, ("-np", 12)),
        (
            "[mpirun, -np, $(N), ./a]\n              env: [{name: N, value: '12'}]",
            4,
            ("-np", 12),
        ),
        ("[mpirun, -np, '8', ./a]", 4, None),
        ("[mpirun, -np, $(N), ./a]", 4, None),
        ("[mpirun, --oversubscribe, -np, '16', ./a]", 4, None),
        ("[mpirun, -H, 'a:8,b:8', -np, '16', ./a]", 4, None),
        ("[bash, -c, 'mpirun ./a; head -n 100 log']", 4, None),
    ],
)
def test_more_ranks_than_slots_are_warned_of(
    tmp_path: Path, command: str, slots: int, ranks: tuple[str, int] | None
) -> None:
    text = MPIJOB.replace("spec:\n  mpi", f"spec:\n  slotsPerWorker: {slots}\n  mpi", 1)
    text = text.replace("command: [mpirun, ./pi]", f"command: {command}")
    assert command in text
    found = [line.partition(": ")[2] for line in complaints(tmp_path, text)]
    expected = ranks and (
        f"W211 '{LAUNCHER_AT}.containers[0].command' starts {ranks[1]} ranks ({ranks[0]}"
        f" {ranks[1]}), but the workers have {2 * slots} slots: 2 x {slots}; lower it, or raise the"
        " workers' slots or number"
    )
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("-npernode, '16'", "-npernode 16"),
        ("-N, '16'", "-N 16"),
        ("-ppn, '16'", "-ppn 16"),
        ("--map-by, 'ppr:16:node'", "--map-by ppr:16"),
        ("-N, '4'", ""),
    ],
)
def test_more_ranks_on_a_node_than_slots_are_warned_of(
    tmp_path: Path, options: str, shown: str
) -> None:
    text = MPIJOB.replace("spec:\n  mpi", "spec:\n  slotsPerWorker: 8\n  mpi", 1)
    found = complaints(tmp_path, text.replace("[mpirun, ./pi]", f"[mpirun, {options}, ./pi]"))
    assert [line.partition(": ")[2] for line in found] == (
        [
            f"W211 '{LAUNCHER_AT}.containers[0].command' starts 16 ranks on a node ({shown}), but a"
            " worker has 8 slots; lower it, or raise the workers' slots"
        ]
        if shown
        else []
    )


def test_the_codes_of_manifests_are_shown_above() -> None:
    shown = {line.split()[1] for _, lines in MANIFEST_CASES for line in lines}
    assert {"E224", "E225", "W204"} <= shown <= set(CODES)


def test_what_is_ignored_is_told_with_its_place() -> None:
    said = [f"{one.line}:{one.column} {one.message}" for one in check(manifest_path("mpijob"))]
    launcher, worker = f"{LAUNCHER_AT}.containers[0]", f"{WORKER_AT}.containers[0]"
    whole = "is ignored: a run has the whole of its nodes"
    stored = "is ignored: nodes have the cluster's file systems, in containers too"
    assert said == [
        "13:5 'spec.runPolicy.backoffLimit' is ignored: a run that fails is not started again by"
        " itself",
        f"36:15 '{launcher}.resources' {whole}",
        f"42:11 '{WORKER_AT}.nodeSelector' is ignored: the run takes nodes of its cluster, next to"
        " each other",
        f"43:11 '{WORKER_AT}.volumes' {stored}",
        f"52:15 '{worker}.resources' {whole}",
        f"54:15 '{worker}.volumeMounts' {stored}",
    ]


def test_a_manifest_is_no_cluster_file() -> None:
    with pytest.raises(InvalidFiles) as error:
        load_cluster(manifest_path("volcano"))
    assert str(error.value) == (
        f"{manifest_path('volcano')}:1:1: E107 this is a manifest of a run; give it to `gpuctl run`"
    )


# Whatever stands in the place of a manifest's values, there are complaints and no exceptions.
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 9), st.text("ab$(){}- ", max_size=6),
    st.just([]), st.just({}), st.just([{"name": 3}]), st.just({"template": []}),
)  # fmt: skip


@settings(max_examples=150)
@given(st.sampled_from(NAMES), st.integers(0, 200), VALUES)
def test_any_value_anywhere_is_a_run_or_complaints(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: int, value: Any
) -> None:
    document, _ = read_yaml(manifest_path(name).read_text(), "job.yaml")
    assert document is not None
    data = json.loads(json.dumps(document.data))
    spots = list(_spots(data["spec"]))
    holder, key = spots[place % len(spots)]
    holder[key] = value
    file = written(tmp_path_factory.getbasetemp(), json.dumps(data))
    if not any(one.severity == "error" for one in check(file)):
        assert load_run(file).type == "task"


def _spots(data: Any) -> Any:
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], (dict, list)):
            yield from _spots(data[key])
