"""Runtimes of Kubeflow Trainer: in the manifest's file, in a folder, or Kubeflow's own.

Kubeflow's own: manifests/base/runtimes of kubeflow/trainer@8c0f5059 (v2.3.0, 2026-08-21);
mpi-distributed: of kubeflow/training-operator@a55f03a8 (2025-02-24), which v2.0.0 has no more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Literal

from config.errors import InputError
from config.loading.manifests import kind_of_manifest
from config.loading.overrides import Substitutions
from config.mistakes import Path, path_text
from config.yaml.hints import names_hint, quote
from config.yaml.marked_yaml import Document, read_documents
from formats.converted import Placed
from formats.foreign_file import ForeignFile
from formats.kubernetes.container import Container
from formats.kubernetes.manifest_reading import read_manifest
from formats.kubernetes.mpi_run import IMPLEMENTATIONS
from formats.kubernetes.pod import container_of_pod

Framework = Literal["torch", "mpi", "jax", "xgboost", "plain"]
_SCHEMA = FilePath(__file__).parent / "schemas" / "training-runtime.json"
_NAME = ("spec", "runtimeRef", "name")
_POLICY = ("spec", "mlPolicy")
_JOBS = ("spec", "template", "spec", "replicatedJobs")
_INSTEAD_OF_FLUX = "use a runtime of torch, mpi, jax or xgboost"
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


RUNTIMES = (
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"),
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"),
)
"""The manifests that a TrainJob uses."""


@dataclass(frozen=True)
class Runtime:
    """A runtime: the number of nodes, and the container, that a TrainJob has by default.

    `processes` is the number of processes on a node, as written; None if the runtime has none.
    `resources` are what its container asks for.
    """

    framework: Framework
    nodes: int
    container: Container
    processes: Any = None
    implementation: str = "OpenMPI"
    resources: Mapping[str, Any] = field(default_factory=dict)


def _own(
    framework: Framework, image: str, nodes: int = 1, command: tuple[str, ...] = ()
) -> Runtime:
    container = Container(_NAME, Placed(image, _NAME), {}, command, (), "")
    return Runtime(framework, nodes, container)


_OF_KUBEFLOW = {
    "torch-distributed": _own("torch", "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
    "deepspeed-distributed": _own("mpi", "ghcr.io/kubeflow/trainer/deepspeed-runtime"),
    "mlx-distributed": _own("mpi", "ghcr.io/kubeflow/trainer/mlx-runtime"),
    "jax-distributed": _own("jax", "nvcr.io/nvidia/jax:25.10-py3"),
    "xgboost-distributed": _own("xgboost", "ghcr.io/kubeflow/trainer/xgboost-runtime"),
    "mpi-distributed": _own(
        "mpi", "mpioperator/mpi-pi:openmpi", nodes=2, command=("mpirun", "/home/mpiuser/pi")
    ),
}
_WITH_INITIALIZERS = (
    "torch-distributed-with-cache",
    "torchtune-llama3.2-1b",
    "torchtune-llama3.2-3b",
    "torchtune-qwen2.5-1.5b",
)
"""Kubeflow's own runtimes whose initializers load data or a model before the job."""


def find_runtime(manifest: ForeignFile) -> Runtime:
    """Return the TrainJob's runtime; for an unknown one report it and return any runtime."""
    manifest.require(_NAME)
    name = manifest.text(_NAME)
    named: list[str] = []
    for document in runtime_documents(manifest):
        own_name = ForeignFile(document, manifest.given).get(("metadata", "name"))
        if own_name == name:
            runtime, own = read_manifest(document, manifest.given, _SCHEMA, _read)
            manifest.diagnostics += own.diagnostics
            manifest.placeholders |= own.placeholders
            return runtime
        named.append(str(own_name))
    if name in _OF_KUBEFLOW:
        return _OF_KUBEFLOW[name]
    if "flux" in name:
        message = f"runtime {quote(name)} is one of Flux, and gpuctl starts no Flux broker"
        manifest.complain("E225", message, _INSTEAD_OF_FLUX, _NAME)
    elif name in _WITH_INITIALIZERS:
        _refuse_initializers(manifest, name)
    elif name:
        _report_unknown(manifest, name, [*named, *_OF_KUBEFLOW])
    return _own("torch", "unknown", command=("unknown",))  # no message about what it lacks


def runtime_documents(manifest: ForeignFile) -> Iterator[Document]:
    """Yield the runtimes of the manifest's file, then those of the folder."""
    documents = list(manifest.document.beside)
    if manifest.given.runtimes is not None:
        documents += _documents_of_folder(manifest, manifest.given.runtimes)
    for document in documents:
        if kind_of_manifest(document.data) in RUNTIMES:
            yield document


def job_documents(document: Document, given: Substitutions) -> list[Document]:
    """Return the job, and the runtime that it names, if there is one in its file or the folder."""
    job = ForeignFile(document, given)
    name = job.get(_NAME)
    runtimes = runtime_documents(job) if name else iter(())
    named = (ForeignFile(runtime, given) for runtime in runtimes)
    return [document, *(own.document for own in named if own.get(("metadata", "name")) == name)]


def _documents_of_folder(manifest: ForeignFile, folder: FilePath) -> Iterator[Document]:
    if not folder.is_dir():
        raise InputError(f"--runtimes: {folder} is no folder", "name the folder of the runtimes")
    for file in sorted((*folder.rglob("*.yaml"), *folder.rglob("*.yml"))):
        documents, diagnostics = read_documents(file)
        manifest.diagnostics += diagnostics
        yield from documents


def _report_unknown(manifest: ForeignFile, name: str, known: list[str]) -> None:
    message = (
        f"'spec.runtimeRef.name' is {quote(name)}: there is no such runtime in the file, in"
        " --runtimes, or among Kubeflow's own"
    )
    manifest.complain("E201", message, names_hint(name, known), _NAME)


def _refuse_initializers(manifest: ForeignFile, name: str) -> None:
    message = f"runtime {quote(name)} has initializers, and nothing runs before the job"
    hint = "bring data and models onto the nodes (`setup.commands` of the cluster file)"
    manifest.complain("E225", message, hint, _NAME)


def _read(own: ForeignFile) -> Runtime:
    """Return the runtime of a manifest, and add the mistakes to it."""
    policy = own.mapping(_POLICY)
    at = _trainer_job(own)
    container = container_of_pod(own, (*at, "template", "spec", "template"))
    framework = _framework(own, policy)
    return Runtime(
        framework,
        own.whole((*_POLICY, "numNodes"), default=1),
        _placed(container),
        own.get((*_POLICY, framework, "numProcPerNode")),
        own.choice((*_POLICY, "mpi", "mpiImplementation"), IMPLEMENTATIONS),
        own.mapping((*container.at, "resources")),
    )


def _placed(container: Container) -> Container:
    """Return the container with the position that the runtime's name has in the job."""
    return replace(
        container,
        at=_NAME,
        image=Placed(container.image.value, _NAME) if container.image else None,
        env={name: Placed(variable.value, _NAME) for name, variable in container.env.items()},
        init=tuple(_placed(init) for init in container.init),
    )


def _framework(own: ForeignFile, policy: dict[str, Any]) -> Framework:
    if "flux" in policy:
        message = "'spec.mlPolicy.flux' cannot be carried out: gpuctl starts no Flux broker"
        own.complain("E225", message, _INSTEAD_OF_FLUX, (*_POLICY, "flux"), on_key=True)
    names: tuple[Framework, ...] = ("torch", "mpi", "jax", "xgboost")
    return next((name for name in names if name in policy), "plain")


def _trainer_job(own: ForeignFile) -> Path:
    """Return the path of the job that trains; report others, which run before it."""
    own.require(_JOBS)
    jobs: dict[str, Path] = {}
    for index in range(len(own.entries(_JOBS))):
        at = (*_JOBS, index)
        step = own.get((*at, "template", "metadata", "labels", _STEP))
        name = own.text((*at, "name"))
        is_only = len(own.entries(_JOBS)) == 1
        if step == "trainer" or name in ("node", "launcher") or is_only:
            jobs["trainer" if step == "trainer" else name] = at
        else:
            message = f"job {quote(name)} cannot be carried out: nothing runs before the job"
            hint = "bring data and models onto the nodes (`setup.commands` of the cluster file)"
            own.complain("E225", message, hint, at)
    present = (jobs[name] for name in ("trainer", "launcher", "node") if name in jobs)
    trainer = next(present, (*_JOBS, 0))
    for other in jobs.values():
        init = (*other, "template", "spec", "template", "spec", "initContainers")
        if other != trainer and own.get(init):
            name = quote(own.text((*trainer, "name")))
            message = f"'{path_text(init)}' cannot be carried out: gpuctl reads job {name} alone"
            hint = f"write them in job {name}: they run on every node"
            own.complain("E225", message, hint, init, on_key=True)
    return trainer
