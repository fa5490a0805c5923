"""Facts about public manifests of Kubeflow and Volcano, and the manifests written from them.

Each row says what a manifest of a public repository has: numbers, images, and the names of its
fields. The values of fields that gpuctl does not read, and all scripts, are ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_NAME = {"name": "job"}
# An example of each field that the manifests have.
_POD: dict[str, Any] = {
    "affinity": {"podAffinity": {}},
    "nodeSelector": {"node.kubernetes.io/instance-type": "p5en.48xlarge"},
    "imagePullSecrets": [{"name": "secret"}],
    "resourceClaims": [{"name": "channel", "resourceClaimTemplateName": "channel"}],
    "restartPolicy": "OnFailure",
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack"}],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
}
_CONTAINER: dict[str, Any] = {
    "env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "LD_LIBRARY_PATH", "value": "/lib"}],
    "imagePullPolicy": "Always",
    "ports": [{"containerPort": 22, "name": "ssh"}],
    "readinessProbe": {"tcpSocket": {"port": 2222}, "initialDelaySeconds": 2},
    "resources": {
        "limits": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4, "memory": "1Gi"},
        "requests": {"cpu": 0.5, "hugepages-2Mi": "5120Mi"},
    },
    "securityContext": {"runAsUser": 1000, "capabilities": {"add": ["IPC_LOCK"]}},
    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    "workingDir": "/home",
}
_MOUNTED = [{"name": "fsx", "mountPath": "/${FSX_PATH}"}]
_SSHD = {"command": ["/usr/sbin/sshd"], "args": ["-De"]}
_MPIRUN = {"command": ["mpirun"], "args": ["-n", "2", "./pi"]}
_ARGS = {"command": None, "args": ["mpirun", "./pi"]}
_SHELL = {
    "command": ["/bin/bash", "-c"],
    "args": ["mpirun -np ${NP:-2} -x PATH=$PATH ./all_reduce"],
}
_NOTHING: dict[str, Any] = {}
_SSHD_SCRIPT = {"command": ["/bin/sh", "-c", "mkdir -p /var/run/sshd; /usr/sbin/sshd -D;"]}
_MPI_SCRIPT = {"command": ["/bin/sh", "-c", "mpiexec --host `cat /etc/volcano/w.host` ./hello"]}
_TORCH = {"command": ["torchrun", "train.py"]}


@dataclass(frozen=True)
class Part:
    """A replica specification or task: its image, words, and the names of its other fields."""

    replicas: int
    image: str
    words: dict[str, Any]
    pod: tuple[str, ...] = ()
    container: tuple[str, ...] = ()
    fields: tuple[tuple[str, Any], ...] = ()

    def template(self) -> dict[str, Any]:
        names = set(self.container) - {"placeholders"}
        fields = {name: _CONTAINER[name] for name in sorted(names)}
        fields |= {"volumeMounts": _MOUNTED} if "placeholders" in self.container else {}
        container = {**_NAME, "image": self.image, **self.words, **fields}
        return {"spec": {**{name: _POD[name] for name in self.pod}, "containers": [container]}}


@dataclass(frozen=True)
class Fact:
    """A public manifest: where it is, its kind, its fields, and the plan that it must have."""

    source: str
    kind: str
    spec: dict[str, Any]
    parts: tuple[Part, ...]
    nodes: int
    image: str
    beside: tuple[dict[str, Any], ...] = ()

    def text(self) -> str:
        """Return the manifest as YAML."""
        version = {
            "MPIJob": "kubeflow.org/v2beta1",
            "Job": "batch.volcano.sh/v1alpha1",
            "TrainJob": "trainer.kubeflow.org/v1alpha1",
        }[self.kind]
        spec = dict(self.spec)
        if self.kind == "MPIJob":
            names = ("Launcher", "Worker")
            spec["mpiReplicaSpecs"] = {
                name: {"replicas": part.replicas, **dict(part.fields), "template": part.template()}
                for name, part in zip(names, self.parts, strict=False)
            }
        elif self.kind == "Job":
            spec["tasks"] = [
                {"name": name, "replicas": part.replicas, **dict(part.fields)}
                | {"template": part.template()}
                for name, part in zip(("m", "w"), self.parts, strict=False)
            ]
        job = {"apiVersion": version, "kind": self.kind, "metadata": _NAME, "spec": spec}
        return yaml.safe_dump_all([*self.beside, job], sort_keys=False)


_POLICY = {"runPolicy": {"cleanPodPolicy": "Running"}}
_DOMAIN = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "ComputeDomain",
    "metadata": {"name": "domain"},
    "spec": {"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": "channel"}}},
}
_NVBANDWIDTH = "ghcr.io/nvidia/k8s-samples:nvbandwidth-v0.7-8d103163"
_COREWEAVE = "ghcr.io/coreweave/nccl-tests:12.9.1-devel-ubuntu22.04-nccl2.28.3-1-8b67957"
_ROCE = "ghcr.io/coreweave/nccl-tests:13.1.0-devel-ubuntu22.04-nccl2.29.2-1-0bf62c2"
_A40 = "ghcr.io/coreweave/nccl-tests:12.4.1-cudnn-devel-ubuntu20.04-nccl2.21.5-1-85f9143"


def _mpi(source: str, slots: int, launcher: Part, worker: Part, **more: Any) -> Fact:
    beside = more.pop("beside", ())
    spec = {"slotsPerWorker": slots, **_POLICY, **more}
    parts = (launcher, worker)
    return Fact(source, "MPIJob", spec, parts, worker.replicas, worker.image, beside)


def _nvidia() -> Iterator[Fact]:
    """Yield NVIDIA/k8s-dra-driver-gpu's tests of a ComputeDomain (demo/specs/imex)."""
    files = (("test-job", 4, 1), ("test-job-1", 2, 1), ("test-job-2", 2, 1), ("no-domain", 4, 0))
    for name, nodes, domains in files:
        claim = ("resourceClaims",) * domains
        own = ("env", "resources", "securityContext")
        yield _mpi(
            f"NVIDIA/k8s-dra-driver-gpu nvbandwidth-{name}",
            2,
            Part(1, _NVBANDWIDTH, _MPIRUN, ("affinity",), ("securityContext",)),
            Part(nodes, _NVBANDWIDTH, _SSHD, claim, own),
            launcherCreationPolicy="WaitForWorkersReady",
            sshAuthMountPath="/home/mpiuser/.ssh",
            beside=(_DOMAIN,) * domains,
        )


def _coreweave() -> Iterator[Fact]:
    """Yield coreweave/nccl-tests' jobs (mpi-operator)."""
    spread = "topologySpreadConstraints"
    rows: tuple[tuple[str, int, int, str, tuple[str, ...], int], ...] = (
        ("a40-64", 8, 8, _A40, (), 0),
        ("a100-64", 8, 8, _COREWEAVE, (), 0),
        ("h100-64", 8, 8, _COREWEAVE, (), 0),
        ("b200-64", 8, 8, _COREWEAVE, (), 0),
        ("b300-64", 8, 8, _COREWEAVE, (), 0),
        ("gb200-nvl72", 18, 4, _COREWEAVE, (), 0),
        ("gb200-128-multirack", 32, 4, _COREWEAVE, (spread,), 0),
        ("gb300-roce-nvl72", 18, 4, _ROCE, (), 0),
        ("gb300-roce-nvl72-dra", 18, 4, _ROCE, ("resourceClaims",), 1),
        ("gb300-roce-128-multirack-dra", 32, 4, _ROCE, ("resourceClaims", spread), 1),
    )
    for name, nodes, slots, image, pod, domains in rows:
        yield _mpi(
            f"coreweave/nccl-tests {name}",
            slots,
            Part(1, image, _SHELL, (), ("env", "resources")),
            Part(
                nodes, image, _NOTHING, ("affinity", "volumes", *pod), ("resources", "volumeMounts")
            ),
            beside=(_DOMAIN,) * domains,
        )


def _operators() -> Iterator[Fact]:
    """Yield the examples of mpi-operator, kueue and awsome-distributed-training."""
    limits = ("resources", "securityContext")
    probe = ("imagePullPolicy", "readinessProbe", *limits)
    home = "/home/mpiuser/.ssh"
    for source in ("kubeflow/mpi-operator pi.yaml", "kubernetes-sigs/kueue sample-mpijob.yaml"):
        image = "mpioperator/mpi-pi:openmpi"
        parts = Part(1, image, _MPIRUN, (), limits), Part(2, image, _SSHD, (), limits)
        yield _mpi(source, 1, *parts, sshAuthMountPath=home)
    for name in ("Intel", "MPICH"):
        image = f"mpioperator/mpi-pi:{name.lower()}"
        yield _mpi(
            f"kubeflow/mpi-operator pi-{name}",
            1,
            Part(1, image, _ARGS, (), ("imagePullPolicy", *limits)),
            Part(2, image, {"command": None, **{"args": ["/usr/sbin/sshd", "-De"]}}, (), probe),
            mpiImplementation=name,
            sshAuthMountPath=home,
        )
    image = "docker.io/kubeflow/mpi-horovod-mnist"
    parts = Part(1, image, _MPIRUN, (), ("resources",)), Part(2, image, {}, (), ("resources",))
    yield _mpi("kubeflow/mpi-operator tensorflow-mnist", 1, *parts)
    image = "mpioperator/tensorflow-benchmarks:latest"
    command = {"command": ["mpirun", "--allow-run-as-root", "python", "tf_cnn_benchmarks.py"]}
    parts = Part(1, image, command), Part(2, image, {}, (), ("resources",))
    yield _mpi("kubeflow/mpi-operator tensorflow-benchmarks", 1, *parts)
    yield from _oracle()
    image = "public.ecr.aws/u1m6g1t5/nccl-tests-arm64:latest"
    yield _mpi(
        "aws-samples/awsome-distributed-training nccl-tests-gb200",
        4,
        Part(1, image, command, ("restartPolicy",), ("env", "imagePullPolicy")),
        Part(
            18, image, {}, ("affinity", "resourceClaims", "volumes"), ("resources", "volumeMounts")
        ),
        runPolicy={"cleanPodPolicy": "Running", "backoffLimit": 20},
        beside=(_DOMAIN,),
    )


def _oracle() -> Iterator[Fact]:
    """Yield oracle-quickstart/oci-hpc-oke's manifests/nccl-tests/kueue (2026-11-23)."""
    image = "iad.ocir.io/idxzjcdglx2s/nccl-tests:cuda-13.3.0-ubuntu-24.04-nccl-2.30.4-071626.0"
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "nccl-tests"},
        "spec": {"clusterQueue": "nccl-tests-queue"},
    }
    own = ("ports", "securityContext", "volumeMounts", "resources")
    for name, nodes, slots in (("H100.8", 2, 8), ("B300.8", 4, 8), ("GB200-v3.4", 16, 4)):
        yield _mpi(
            f"oracle-quickstart/oci-hpc-oke BM.GPU.{name}",
            slots,
            Part(1, image, _SHELL, (), ("ports", "env")),
            Part(nodes, image, _SSHD_SCRIPT, ("nodeSelector", "volumes"), own),
            sshAuthMountPath="/root/.ssh",
            beside=(queue,),
        )


def _awslabs() -> Iterator[Fact]:
    """Yield awslabs/awsome-distributed-ai's jobs: placeholders in fields that gpuctl ignores."""
    image = "me/deepep:1"
    for name, nodes in (("internode", 2), ("intranode", 1)):
        parts = (
            Part(1, image, _SHELL, ("nodeSelector",)),
            Part(nodes, image, _SSHD_SCRIPT, ("nodeSelector",), ("placeholders", "resources")),
        )
        yield _mpi(f"awslabs/awsome-distributed-ai deepep-{name}", 8, *parts)


def _trainer() -> Iterator[Fact]:
    """Yield kubeflow/trainer's examples/yaml."""
    ref = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}
    limits = {"limits": {"cpu": "4", "memory": "8Gi"}}
    of_torch = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed-volcano"},
        "spec": {
            "podGroupPolicy": {"volcano": {}},
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {
                "template": Part(1, of_torch, {}).template()}}}]}},
        },
    }  # fmt: skip
    rows: tuple[tuple[str, int, str, str, dict[str, Any], dict[str, Any], int], ...] = (
        ("01-multi-node", 3, "torch-distributed", of_torch, {}, {}, 0),
        (
            *("02-runtime-patches", 2, "torch-distributed", of_torch),
            {"env": [{"name": "PYTHONUNBUFFERED", "value": "1"}], "resourcesPerNode": limits},
            {"runtimePatches": [{"manager": "me"}]},
            0,
        ),
        (
            *("03-kueue", 3, "torch-distributed", "python:3.11-slim"),
            {"image": "python:3.11-slim", "resourcesPerNode": limits},
            {"suspend": True},
            0,
        ),
        ("04-volcano", 4, "torch-distributed-volcano", of_torch, {}, {}, 1),
    )
    for name, nodes, of, image, trainer, more, runtimes in rows:
        spec = {
            "runtimeRef": {**ref, "name": of},
            "trainer": {"numNodes": nodes, **_TORCH, **trainer},
            **more,
        }
        source = f"kubeflow/trainer {name}"
        yield Fact(source, "TrainJob", spec, (), nodes, image, (runtime,) * runtimes)


def _volcano() -> Iterator[Fact]:
    """Yield volcano-sh/volcano's examples."""
    spec: dict[str, Any] = {"minAvailable": 3, "schedulerName": "volcano"}
    plugins: dict[str, Any] = {"plugins": {"ssh": [], "svc": []}}
    evicted = {"policies": [{"event": "PodEvicted", "action": "RestartJob"}]}
    done = (("policies", [{"event": "TaskCompleted", "action": "CompleteJob"}]),)
    first = (*done, ("dependsOn", {"name": ["w"]}))
    never, secrets = ("restartPolicy",), ("imagePullSecrets", "restartPolicy")
    ports = ("ports", "workingDir")
    rows: tuple[tuple[str, int, str, tuple[tuple[str, Any], ...], tuple[str, ...], Any], ...] = (
        ("mpi-example", 2, "volcanosh/example-mpi:0.0.3", done, never, {}),
        ("task-start-dependency/mpi", 10, "volcanosh/example-mpi:0.0.3", first, never, {}),
        ("kubecon gang", 3, "volcanosh/example-mpi:0.0.1", done, secrets, evicted),
        ("kubecon mpi-sample", 2, "volcanosh/example-mpi:0.0.1", done, secrets, evicted),
        ("kubecon horovod", 3, "volcanosh/horovod-tf-mnist:0.5", done, secrets, evicted),
        ("mindspore-gpu", 2, "lyd911/mindspore-gpu-example:0.2.0", (), never, {}),
    )
    for name, workers, image, fields, pod, more in rows:
        master = Part(1, image, _MPI_SCRIPT, pod, ports, fields)
        parts = (master, Part(workers, image, _SSHD_SCRIPT, pod, (*ports, "resources")))
        yield Fact(f"volcano {name}", "Job", spec | plugins | more, parts, workers, image)
    all_plugins = {"plugins": {"ssh": [], "env": [], "svc": ["--inject-hosts-env=true"]}}
    more = {**all_plugins, **evicted, "maxRetry": 5, "queue": "default"}
    image = "lyd911/mindspore-cpu-example:0.2.0"
    own = (Part(8, image, {"command": ["/bin/bash", "-c", "python x.py"]}, never, ("resources",)),)
    yield Fact("volcano mindspore-cpu", "Job", spec | more, own, 8, image)
    own = (Part(6, "nginx", {}, never, ("imagePullPolicy", "resources")),)
    yield Fact("volcano example/job", "Job", spec | more, own, 6, "nginx")
    image = "gcr.io/kubeflow-ci/pytorch-dist-sendrecv-test:1.0"
    torch = {"plugins": {"pytorch": ["--master=m", "--worker=w", "--port=23456"]}}
    parts = (Part(1, image, {}, (), (), done), Part(2, image, {}, ("restartPolicy",)))
    yield Fact("volcano website pytorch plugin", "Job", spec | torch, parts, 3, image)


CORPUS = (*_nvidia(), *_coreweave(), *_operators(), *_awslabs(), *_trainer(), *_volcano())
