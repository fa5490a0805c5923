"""The amounts that a manifest's container asks for, by Kubernetes' and Kubeflow Trainer's rules.

Quantities: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
(2026-11-23). GPUs and CPUs of a node: GetNumGPUPerNode in pkg/runtime/runtime.go and
getNumCPUPerNode in pkg/runtime/framework/plugins/torch/torch.go of kubeflow/trainer@8c0f5059
(2026-08-21).
"""

import math
import re
from collections.abc import Mapping
from typing import Any

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
