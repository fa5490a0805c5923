"""Manifests with several documents, placeholders of envsubst, and runtimes of Kubeflow Trainer."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.errors import InputError
from config.loading.load import check, load_run
from config.loading.overrides import Overrides, Substitutions
from config.run.env import Secret
from config.run.run_file import Task
from tests.engine.golden import inventory_path
from tests.formats.manifest_texts import MPIJOB, TRAINJOB, VOLCANO
from tests.formats.test_manifests import complaints, written

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
COMPUTE_DOMAIN = "apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata: {}\n"
ALONE = "gpuctl does not create it, it runs the job alone; see that the job does not need it"
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: mine}
spec:
  mlPolicy: {numNodes: 3, torch: {numProcPerNode: 4}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec:
              template:
                spec:
                  containers:
                    - name: node
                      image: mine:1
                      command: [torchrun, train.py]
                      env: [{name: A, value: runtime}, {name: B, value: runtime}]
"""
OF_MINE = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: mine}
"""


def run_of(folder: Path, text: str, *placeholders: str, runtimes: Path | None = None) -> Task:
    overrides = Overrides(manifest=Substitutions(placeholders, runtimes))
    run = load_run(written(folder, text), overrides)
    assert isinstance(run, Task)
    return run


def lines(folder: Path, text: str, *placeholders: str, runtimes: Path | None = None) -> list[str]:
    file = written(folder, text)
    found = check(file, Overrides(manifest=Substitutions(placeholders, runtimes)))
    return [str(one).removeprefix(f"{file}:") for one in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MPIJOB + "---\n", []),
        ("---\n" + MPIJOB, []),
        (CONFIG_MAP + "---\n" + MPIJOB, [f"1:1: W204 ConfigMap 'settings': {ALONE}"]),
        (
            MPIJOB + "---\n" + COMPUTE_DOMAIN + "---\n" + CONFIG_MAP,
            [f"17:1: W204 ComputeDomain, ConfigMap 'settings': {ALONE}"],
        ),
        (
            "---\n".join([MPIJOB, *(CONFIG_MAP for _ in range(6))]),
            [
                "17:1: W204 ConfigMap 'settings', ConfigMap 'settings', ConfigMap 'settings',"
                f" ConfigMap 'settings' and 2 more: {ALONE}"
            ],
        ),
        (
            MPIJOB + "---\n" + VOLCANO,
            [
                "17:1: E224 the file has two jobs, MPIJob 'pi' and Job 'hello'; write one job into"
                " a file"
            ],
        ),
        (
            CONFIG_MAP + "---\n" + COMPUTE_DOMAIN,
            [
                "1:1: E224 no job that gpuctl runs among ConfigMap 'settings', ComputeDomain; it"
                " runs MPIJob of kubeflow.org/v2beta1, TrainJob of trainer.kubeflow.org/v1alpha1"
                " and Job of batch.volcano.sh/v1alpha1"
            ],
        ),
        (
            MPIJOB + "---\nname: demo\n",
            ["17:1: E006 a second document begins; put one document into a file"],
        ),
        (MPIJOB + "---\nname: [\n", ["19:1: E001 not YAML: expected the node content, but found"]),
    ],
)
def test_the_job_of_a_file_with_several_documents(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    found = complaints(tmp_path, text)
    assert [one[: len(line)] for one, line in zip(found, expected, strict=True)] == expected


FILLED = (
    MPIJOB.replace("image: mpi", "image: ${REGISTRY}/mpi:$TAG")
    .replace("replicas: 2", "replicas: ${NODES}")
    .replace("[mpirun, ./pi]", "[mpirun, -n, '${NODES}', $HOME/pi, $TAG, $OTHER]")
)
GIVEN = ("REGISTRY=nvcr.io/x", "TAG=1.10", "NODES=3")


def test_placeholders_are_filled_in_from_the_command_line(tmp_path: Path) -> None:
    run = run_of(tmp_path, FILLED, *GIVEN)
    assert (run.image, run.nodes) == ("nvcr.io/x/mpi:1.10", 3)
    # Kubernetes leaves `$NAME` in words; TAG is a placeholder elsewhere in the manifest.
    assert run.commands[-1] == "mpirun -n 3 '$HOME/pi' 1.10 '$OTHER'"


def test_placeholders_are_filled_in_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pair in ("REGISTRY=nvcr.io/x", "TAG=1", "NODES=4", "OTHER=x", "HOME=/home/me"):
        monkeypatch.setenv(*pair.split("="))
    run = run_of(tmp_path, FILLED, "TAG=2")
    assert (run.image, run.nodes) == ("nvcr.io/x/mpi:2", 4)
    assert run.commands[-1] == "mpirun -n 4 '$HOME/pi' 2 '$OTHER'"


def test_a_placeholder_without_a_value_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REGISTRY", "TAG", "NODES"):
        monkeypatch.delenv(name, raising=False)
    at = "spec.mpiReplicaSpecs.Worker"
    assert lines(tmp_path, FILLED, "TAG=1", "NODE=2") == [
        "--set:2:1: W208 --set 'NODE' fills in nothing: there is no ${NODE}; check the name",
        "10:37: E227 'spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command[2]' has"
        " envsubst's placeholder ${NODES}, without a value; add `--set NODES=VALUE`, or `export"
        " NODES=VALUE` before",
        f"12:17: E227 '{at}.replicas' has envsubst's placeholder ${{NODES}}, without a value; add"
        " `--set NODES=VALUE`, or `export NODES=VALUE` before",
        f"16:22: E227 '{at}.template.spec.containers[0].image' has envsubst's placeholder"
        " ${REGISTRY}, without a value; add `--set REGISTRY=VALUE`, or `export REGISTRY=VALUE`"
        " before",
    ]


def test_a_placeholder_in_a_field_that_is_ignored_needs_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLAIM", "NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    mounts = "image: mpi\n              volumeMounts: [{name: fsx, mountPath: '/${CLAIM}'}]"
    text = MPIJOB.replace("image: mpi", mounts)
    text = text.replace("name: pi", "name: pi, namespace: '${NAMESPACE}'", 1)
    expected = [
        "17:15: W204 'spec.mpiReplicaSpecs.Worker.template.spec.containers[0].volumeMounts' is"
        " ignored: nodes have the cluster's file systems, in containers too; see that the job does"
        " not need it, or remove it"
    ]
    assert lines(tmp_path, text) == lines(tmp_path, text, "CLAIM=x") == expected


def test_a_script_keeps_what_its_shell_expands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODES", "5")
    monkeypatch.setenv("RANKS", "6")
    script = "torchrun --nnodes ${NODES} -n ${RANKS} $SIZE"
    text = TRAINJOB.replace("[train]", f"[bash, -c, '{script}']") + "    numNodes: ${NODES}\n"
    run = run_of(tmp_path, text, "SIZE=7")
    assert run.nodes == 5
    assert run.commands[-1] == "bash -c 'torchrun --nnodes 5 -n 6 7'"
    without_template = TRAINJOB.replace("[train]", f"[bash, -c, '{script}']")
    kept = "bash -c 'torchrun --nnodes ${NODES} -n ${RANKS} $SIZE'"
    assert run_of(tmp_path, without_template).commands[-1] == kept
    assert [line for line in lines(tmp_path, without_template) if "W212" in line] == []


def test_a_script_of_a_template_names_what_nothing_fills_in(tmp_path: Path) -> None:
    script = (
        "SHARDS=2; for file in a b; do train ${DATA} ${MODEL} ${SHARDS} ${file} ${RANK} ${OWN}"
        " ${HOME} ${LIMIT:-3} $PLAIN ${PET_NNODES}; done"
    )
    text = TRAINJOB.replace("[train]", f"[bash, -c, '{script}']") + (
        "    numNodes: ${NODES}\n    env: [{name: OWN, value: x}]\n"
    )
    assert lines(tmp_path, text, "NODES=2", "MODEL=m") == [
        "7:25: W212 'spec.trainer.command[2]' has ${DATA}, which nothing here sets; add `--set"
        " DATA=VALUE`, unless it is set on the nodes"
    ]
    assert lines(tmp_path, text, "NODES=2", "MODEL=m", "DATA=d") == []


def test_a_secret_is_not_filled_in_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    own = TRAINJOB + "    env: [{name: HF_TOKEN, value: '${HF_TOKEN}'}]\n"
    assert run_of(tmp_path, own).env == {"HF_TOKEN": Secret(secret="HF_TOKEN")}
    assert lines(tmp_path, own.replace("name: HF", "name: MY_HF")) == [
        "8:38: E227 'spec.trainer.env[0].value' has envsubst's placeholder ${HF_TOKEN}, without a"
        " value; take the secret by `valueFrom: {secretKeyRef: {name: x, key: HF_TOKEN}}`, or add"
        " `--set HF_TOKEN=VALUE`"
    ]


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            Overrides(env=("A=b",)),
            "12:17: E202 'spec.mpiReplicaSpecs.Worker.replicas' is 600, above 512; use 1 to 512",
        ),
        (Overrides(nodes="700"), "--nodes:1:1: E202 'nodes' is 700, above 512; use 1 to 512"),
    ],
)
def test_a_message_names_the_option_that_overrides_a_field(
    tmp_path: Path, overrides: Overrides, line: str
) -> None:
    file = written(tmp_path, MPIJOB.replace("replicas: 2", "replicas: 600"))
    assert [str(one).removeprefix(f"{file}:") for one in check(file, overrides)] == [line]


def test_a_run_file_has_no_placeholders(tmp_path: Path) -> None:
    text = "type: task\nname: a\ncommands: ['echo ${NODES}']\n"
    assert lines(tmp_path, text, "NODES=2") == [
        "--set:1:1: W208 --set 'NODES' fills in nothing: there is no ${NODES}; check the name"
    ]


def test_annotations_may_have_a_dollar(tmp_path: Path) -> None:
    text = MPIJOB.replace("{name: pi}", "{name: pi, annotations: {a: '${B}'}}")
    assert lines(tmp_path, text) == []


def test_set_needs_a_name_and_a_value(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        lines(tmp_path, MPIJOB, "NODES")
    assert str(error.value) == "--set is 'NODES'; write NAME=VALUE"


def test_a_runtime_of_the_file(tmp_path: Path) -> None:
    run = run_of(tmp_path, RUNTIME + "---\n" + OF_MINE)
    assert (run.nodes, run.image) == (3, "mine:1")
    assert run.env == {"A": "runtime", "B": "runtime"}
    assert "PET_NPROC_PER_NODE=4" in run.commands[0]
    assert run.commands[-1] == "torchrun train.py"


def test_the_resources_of_a_runtime_are_those_of_its_trainjob(tmp_path: Path) -> None:
    runtime = RUNTIME.replace("numProcPerNode: 4", "numProcPerNode: auto").replace(
        "image: mine:1",
        "image: mine:1\n                      resources: {limits: {nvidia.com/gpu: 2}}",
    )
    run = run_of(tmp_path, runtime + "---\n" + OF_MINE)
    assert "PET_NPROC_PER_NODE=2" in run.commands[0]


def test_a_trainjob_overrides_its_runtime(tmp_path: Path) -> None:
    trainer = (
        "  trainer:\n    numNodes: 2\n    image: other:2\n    command: [train]\n"
        "    env: [{name: B, value: job}]\n"
    )
    run = run_of(tmp_path, OF_MINE + trainer + "---\n" + RUNTIME)
    assert (run.nodes, run.image) == (2, "other:2")
    assert run.env == {"A": "runtime", "B": "job"}
    assert run.commands[-1] == "train"


def test_a_runtime_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runtimes" / "own"
    folder.mkdir(parents=True)
    (folder / "mine.yml").write_text(
        CONFIG_MAP + "---\n" + RUNTIME.replace("Cluster", "").replace("mine:1", "${REGISTRY}/mine")
    )
    run = run_of(tmp_path, OF_MINE, "REGISTRY=a.example", runtimes=folder.parent)
    assert (run.nodes, run.image) == (3, "a.example/mine")
    with pytest.raises(InputError) as error:
        lines(tmp_path, OF_MINE, runtimes=tmp_path / "none")
    assert str(error.value) == (
        f"--runtimes: {tmp_path / 'none'} is no folder; name the folder of the runtimes"
    )


JOB_AT = "spec.template.spec.replicatedJobs[0]"


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        (
            RUNTIME.replace("{name: mine}", "{name: mines}"),
            "25:22: E201 'spec.runtimeRef.name' is 'mine': there is no such runtime in the file, in"
            " --runtimes, or among Kubeflow's own; did you mean 'mines'?",
        ),
        (
            RUNTIME.replace("torch: {numProcPerNode: 4}", "flux: {}"),
            "5:27: E225 'spec.mlPolicy.flux' cannot be carried out: gpuctl starts no Flux broker;"
            " use a runtime of torch, mpi, jax or xgboost",
        ),
        (
            RUNTIME.replace("numNodes", "numNode"),
            "5:14: E101 unknown key 'numNode' in 'spec.mlPolicy'; did you mean 'numNodes'?",
        ),
        (
            RUNTIME.replace("replicatedJobs:\n", "replicatedJobs:\n        - name: load\n"),
            "9:11: E225 job 'load' cannot be carried out: nothing runs before the job; bring data"
            " and models onto the nodes (`setup.commands` of the cluster file)",
        ),
        (
            RUNTIME.replace("image: mine:1", "image: <mine>"),
            f"17:30: E226 '{JOB_AT}.….template.spec.containers[0].image' is '<mine>', in which"
            " '<mine>' is not filled in; write your own value there",
        ),
    ],
)
def test_a_wrong_runtime_is_reported_where_it_is(
    tmp_path: Path, runtime: str, expected: str
) -> None:
    assert lines(tmp_path, runtime + "---\n" + OF_MINE) == [expected]


def test_a_runtime_of_kubeflow_with_initializers_is_refused(tmp_path: Path) -> None:
    assert lines(tmp_path, OF_MINE.replace("mine", "torchtune-llama3.2-1b")) == [
        "5:22: E225 runtime 'torchtune-llama3.2-1b' has initializers, and nothing runs before the"
        " job; bring data and models onto the nodes (`setup.commands` of the cluster file)",
    ]


@pytest.mark.parametrize(
    ("policy", "exported"),
    [
        (
            "jax: {}",
            'export JAX_NUM_PROCESSES="$GPUCTL_NODES_NUM" JAX_PROCESS_ID="$GPUCTL_NODE_RANK"'
            ' JAX_COORDINATOR_ADDRESS="$GPUCTL_MASTER_NODE_IP:29500"',
        ),
        (
            "xgboost: {}",
            'export DMLC_TRACKER_URI="$GPUCTL_MASTER_NODE_IP" DMLC_TRACKER_PORT=29500'
            ' DMLC_TASK_ID="$GPUCTL_NODE_RANK" DMLC_NUM_WORKER="$((8 * GPUCTL_NODES_NUM))"',
        ),
        ("numNodes: 2", 'export JOB_COMPLETION_INDEX="$GPUCTL_NODE_RANK"'),
    ],
)
def test_what_a_framework_finds(tmp_path: Path, policy: str, exported: str) -> None:
    runtime = RUNTIME.replace("torch: {numProcPerNode: 4}", policy).replace("numNodes: 3, n", "n")
    job = OF_MINE + "  trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}\n"
    run = run_of(tmp_path, runtime + "---\n" + job)
    assert run.commands[0] == exported


def test_a_runtime_of_mpi(tmp_path: Path) -> None:
    runtime = RUNTIME.replace("torch: {numProcPerNode: 4}", "mpi: {numProcPerNode: 4}")
    run = run_of(tmp_path, runtime.replace("torchrun", "mpirun") + "---\n" + OF_MINE)
    assert run.commands[0].startswith("mkdir -p /etc/mpi && printf '%s slots=4\\n'")
    assert run.roles["worker"].commands == ("sleep infinity",)


def test_the_command_line_takes_values_and_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runtimes"
    folder.mkdir()
    (folder / "mine.yaml").write_text(RUNTIME)
    file = written(tmp_path, OF_MINE + "  trainer: {numNodes: '${N}'}\n".replace("'", ""))
    options = ["--set", "N=2", "--runtimes", str(folder)]
    file.write_text(OF_MINE + "  trainer:\n    numNodes: ${N}\n")
    answer = CliRunner().invoke(app, ["validate", str(file), *options])
    assert (answer.exit_code, answer.output) == (0, f"{file}: ok\n")
    more = ["--dry-run", "--json", "--inventory", str(inventory_path(2))]
    answer = CliRunner().invoke(app, ["run", str(file), *options, *more])
    assert answer.exit_code == 0, answer.output
    assert '"mine:1"' in answer.stdout
