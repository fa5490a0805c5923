"""The nodes that a manifest asks for, as `requires` of a run file: for `gpuctl up --for`.

`run` does not compare them with the cluster: a run has the whole of its nodes, and people rehearse
manifests with `--no-image` on nodes without GPUs.

Labels of nodes: https://kubernetes.io/docs/reference/node/node-labels/; of GPUs:
https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery. SageMaker HyperPod
calls types `ml.p5.48xlarge` (awsome-distributed-ai, all 2026-11-23).

The amounts are read by Kubernetes' and Kubeflow Trainer's rules. Quantities:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/ (2026-11-23). GPUs
and CPUs of a node: GetNumGPUPerNode in pkg/runtime/runtime.go and getNumCPUPerNode in
pkg/runtime/framework/plugins/torch/torch.go of kubeflow/trainer@8c0f5059 (2026-08-21).
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from config.catalogue.instance_types import catalogue, is_instance_type
from config.cluster.cluster_file import REGION, ZONE
from config.loading.overrides import Substitutions
from config.run.requirements import Requires, plain_gpu
from config.yaml.marked_yaml import Document
from formats.kubernetes.placeholders import fill_placeholders

_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(m|[kMGTP]|[KMGTP]i)?")
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def quantity(written: Any) -> float | None:
    """Return the number that a quantity is (`500m`, `2Gi`), or None if it is none."""
    match = _QUANTITY.fullmatch(str(written))
    return float(match[1]) * _UNITS[match[2] or ""] if match else None


def gpus_per_node(resources: Mapping[str, Any]) -> int:
    """Return the GPUs that the requests name, or else the limits; 0 if neither does."""
    return _amount(resources, "requests", "gpu") or _amount(resources, "limits", "gpu")


def cpus_per_node(resources: Mapping[str, Any]) -> int:
    """Return the whole CPUs, rounded up, of the requests, or else of the limits."""
    return _amount(resources, "requests", "cpu") or _amount(resources, "limits", "cpu")


def _amount(resources: Mapping[str, Any], kind: str, name: str) -> int:
    amounts = resources.get(kind)
    for key, value in amounts.items() if isinstance(amounts, dict) else ():
        if key == name or (name == "gpu" and name in key.lower()):
            return math.ceil(quantity(value) or 0)
    return 0


_GPUS, _EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"
_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_GPU_LABEL = "nvidia.com/gpu.product"
_ZONE_LABEL, _REGION_LABEL = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_OF_PODS = {"containers", "resourcesPerNode", "nodeSelector", "affinity"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_GIB = 2.0**30


def pod_requirements(documents: Iterable[Document], given: Substitutions) -> Requires | None:
    """Return what the job that these documents describe asks of a node; None for absurd numbers.

    If a job's pods ask for different nodes, those that ask for most GPUs count: on the cluster a
    launcher shares node 0 with a worker.
    """
    filled = (fill_placeholders(document, given)[0] for document in documents)
    pods = [pod for document in filled for pod in _pods(document.data)]
    most = max((_quantities(pod).get(_GPUS, 0) for pod in pods), default=0)
    amounts: dict[str, float] = {}
    labels: dict[str, tuple[str, ...]] = {}
    for pod in pods:
        own = _quantities(pod)
        if own.get(_GPUS, 0) == most or "containers" not in pod:
            amounts |= {name: max(value, amounts.get(name, 0)) for name, value in own.items()}
            labels |= _labels(pod)
    try:
        return Requires.model_validate(_requires(amounts, labels))
    except ValidationError:  # an absurd number, which no type has
        return None


def _requires(amounts: dict[str, float], labels: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    needs: dict[str, Any] = {}
    for name, field in ((_GPUS, "gpus"), (_EFA, "efa"), ("cpu", "cpus")):
        if amounts.get(name):
            needs[field] = f"{math.ceil(amounts[name])}.."
    if amounts.get("memory"):
        needs["memory"] = f"{math.ceil(amounts['memory'] / _GIB)}GB.."
    types = [name.removeprefix("ml.") for key in _TYPE_LABELS for name in labels.get(key, ())]
    needs["instance_types"] = tuple(filter(is_instance_type, types))
    needs["gpu"] = _models(labels.get(_GPU_LABEL, ()))
    for key, field, form in ((_ZONE_LABEL, "zones", ZONE), (_REGION_LABEL, "regions", REGION)):
        needs[field] = tuple(name for name in labels.get(key, ()) if re.fullmatch(form, name))
    return needs


def _models(products: tuple[str, ...]) -> tuple[str, ...]:
    """Return the catalogue's names of GPUs: A100 for NVIDIA-A100-SXM4-40GB."""
    words = {plain_gpu(word) for product in products for word in product.split("-")}
    models = dict.fromkeys(entry.gpu.model for entry in catalogue().values() if entry.gpu.count)
    return tuple(model for model in models if plain_gpu(model) in words)


def _pods(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the specifications of pods, and the parts of a TrainJob that change one."""
    if isinstance(value, dict):
        if value.keys() & _OF_PODS:
            yield value
        else:
            for inner in value.values():
                yield from _pods(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _pods(inner)


def _quantities(pod: dict[str, Any]) -> dict[str, float]:
    """Return the largest limit or request of each resource."""
    most: dict[str, float] = {}
    containers = pod.get("containers")
    resources = [pod.get("resourcesPerNode")]
    resources += [
        _get(container, "resources")
        for container in containers or ()
        if isinstance(container, dict)
    ]
    for resource in resources:
        for kind in ("requests", "limits"):
            amounts = _get(resource, kind)
            for name, value in amounts.items() if isinstance(amounts, dict) else ():
                amount = quantity(value)
                if amount is not None:
                    most[name] = max(amount, most.get(name, 0))
    return most


def _labels(pod: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the values that labels of the pod's nodes may have."""
    selector = pod.get("nodeSelector")
    pairs = selector.items() if isinstance(selector, dict) else ()
    labels: dict[str, tuple[str, ...]] = {k: (v,) for k, v in pairs if isinstance(v, str)}
    terms = _get(pod, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    for term in terms if isinstance(terms, tuple) else ():
        for expression in _get(term, "matchExpressions") or ():
            values = _get(expression, "values")
            if _get(expression, "operator") == "In" and isinstance(values, tuple):
                key = str(_get(expression, "key"))
                labels[key] = tuple(value for value in values if isinstance(value, str))
    return labels


def _get(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
