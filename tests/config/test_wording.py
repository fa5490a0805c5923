"""Messages for people who come from Kubeflow, dstack and Terraform."""

import subprocess
from pathlib import Path

import pytest

from config.loading.load import check
from config.yaml.hints import choice_hint
from tests.cli.test_command import COMMAND

VERSION = "apiVersion: trainer.kubeflow.org/v1alpha1\n"
JOB = (
    f"{VERSION}kind: TrainJob\nmetadata: {{name: tj}}\nspec:\n"
    "  runtimeRef: {name: torch-distributed}\n"
)


RUNTIME = "the runtime that 'runtimeRef' names"


def said(text: str, folder: Path, name: str = "file.yaml") -> list[str]:
    file = folder / name
    file.write_text(text)
    return [str(one).removeprefix(f"{file}:") for one in check(file)]


@pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainingRuntime"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_runtime_alone_is_no_job(kind: str, number: int, tmp_path: Path) -> None:
    runtime = f"{VERSION}kind: {kind}\nmetadata: {{name: torch}}\nspec: {{}}\n"
    (line,) = said("---\n".join([runtime] * number), tmp_path)
    assert line.partition(": ")[2] == (
        f"E224 a {kind} is no job: it says how the TrainJobs run that name it; run a TrainJob of"
        " it: `gpuctl run trainjob.yaml --runtimes FOLDER`, with this file in FOLDER, or write both"
        " into one file"
    )


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("mlPolicy: {numNodes: 2}", "it belongs in 'spec' of the runtime that 'runtimeRef' names"),
        ("podGroupPolicy: {}", "it belongs in 'spec' of the runtime that 'runtimeRef' names"),
        ("template: {}", "it belongs in 'spec' of the runtime that 'runtimeRef' names"),
        ("numNodes: 2", "write it in 'spec.trainer'"),
        ("resourcesPerNode: {}", "write it in 'spec.trainer'"),
        ("torch: {numProcPerNode: 4}", f"it belongs in 'spec.mlPolicy' of {RUNTIME}"),
        ("nodeSelector: {}", f"it belongs in the pod of {RUNTIME}"),
        ("volumeMounts: []", f"it belongs in the pod of {RUNTIME}"),
        ("resources: {}", "write 'resourcesPerNode' in 'spec.trainer'"),
        ("suspendd: true", "did you mean 'suspend'?"),
    ],
)
def test_a_key_of_a_runtime_in_a_trainjob_says_where_it_belongs(
    key: str, hint: str, tmp_path: Path
) -> None:
    lines = said(f"{JOB}  trainer: {{command: [python, a.py]}}\n  {key}\n", tmp_path)
    name = key.partition(":")[0]
    assert f"7:3: E101 unknown key '{name}' in 'spec'; {hint}" in lines


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("mlPolicy: {}", f"it belongs in 'spec' of {RUNTIME}"),
        ("mpi: {}", f"it belongs in 'spec.mlPolicy' of {RUNTIME}"),
        ("volumes: []", f"it belongs in the pod of {RUNTIME}"),
        ("workingDir: /x", f"it belongs in the pod of {RUNTIME}"),
        ("resources: {}", "write 'resourcesPerNode' in 'spec.trainer'"),
        ("numNode: 2", "did you mean 'numNodes'?"),
    ],
)
def test_a_key_of_a_pod_in_a_trainer_says_where_it_belongs(
    key: str, hint: str, tmp_path: Path
) -> None:
    lines = said(f"{JOB}  trainer:\n    command: [python, a.py]\n    {key}\n", tmp_path)
    name = key.partition(":")[0]
    assert f"8:5: E101 unknown key '{name}' in 'spec.trainer'; {hint}" in lines


def test_a_key_that_neither_dstack_nor_gpuctl_has(tmp_path: Path) -> None:
    text = "type: task\nname: t\ncommands: [a]\ncolour: red\n"
    assert said(text, tmp_path, "t.dstack.yml") == [
        "4:1: W207 unknown key 'colour': neither dstack nor gpuctl has it; remove it: it has no"
        " effect"
    ]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("fsx", "did you mean 'fsx-lustre'? Allowed: efs, fsx-lustre"),
        ("FSx", "did you mean 'fsx-lustre'? Allowed: efs, fsx-lustre"),
        ("esf", "did you mean 'efs'? Allowed: efs, fsx-lustre"),
        ("", "use efs or fsx-lustre"),
    ],
)
def test_a_choice_that_is_the_beginning_of_another_means_that_one(value: str, hint: str) -> None:
    assert choice_hint(value, ("efs", "fsx-lustre")) == hint


MPI = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: job}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{name: l, image: i, command: [mpirun, -np, "16", a]}]}}
    Worker:
      replicas: 2
      template:
        spec:
          nodeSelector: {node.kubernetes.io/instance-type: "${INSTANCE_TYPE}"}
          affinity: {}
          tolerations: [{operator: Exists}]
          volumes: [{name: v, emptyDir: {}}]
          containers: [{name: w, image: i, volumeMounts: [{name: v, mountPath: /v}]}]
"""


def test_ignored_fields_are_one_line_behind_all_others(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MPI)
    done = subprocess.run(
        [str(COMMAND), "validate", str(file)], capture_output=True, text=True, check=False
    )
    lines = done.stdout.replace(f"{file}:", "").splitlines()
    assert lines[-2:] == [
        "13:11: W204 5 fields are ignored: nodeSelector, affinity, tolerations, volumes,"
        " volumeMounts; see that the job does not need them: `gpuctl validate --json` has the"
        " reasons",
        " ok",
    ]
    assert done.stdout.count("W204") == 1
    assert (done.returncode, done.stderr) == (0, "")


def test_a_placeholder_of_an_ignored_field_needs_no_value(tmp_path: Path) -> None:
    assert not [line for line in said(MPI, tmp_path) if "E227" in line]
    image = MPI.replace("image: i,", 'image: "${IMAGE}",')
    assert [line for line in said(image, tmp_path) if "E227" in line] != []
