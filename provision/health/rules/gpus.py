"""Rules about GPUs: their number, driver, links, memory and speed."""

import re
from collections.abc import Iterator

from config.xid import gpu_errors
from provision.health.facts import NodeFacts
from provision.health.model import REBOOT, REPLACE, AllFacts, Deviation, Rule, Severity, from_checks

_MISMATCH = "version mismatch"
"""Words of nvidia-smi if the module in the kernel is older than the installed libraries."""


def _check_gpus(_: str, facts: NodeFacts, fleet: AllFacts) -> Iterator[Deviation]:
    """Yield a GPU too few or too many, and GPUs of another model."""
    expected = fleet.expected
    if facts.gpus is None or not expected.gpus or _MISMATCH in facts.smi_error:
        return  # a mismatch of driver and library is the rule `driver`'s
    if len(facts.gpus) != expected.gpus:
        seen = facts.smi_error or str(len(facts.gpus))
        yield Deviation("GPUs", str(expected.gpus), seen)
    yield from from_checks(facts, "GPUs that DCGM finds")
    for name in sorted({gpu.name for gpu in facts.gpus}):
        if not _is_model(expected.model, name):
            yield Deviation("model of the GPUs", expected.model, name)


def _is_model(model: str, name: str) -> bool:
    """Return whether nvidia-smi's name has all words of the model: `NVIDIA H100 80GB HBM3`."""
    words = set(re.split(r"[ -]", name))
    return all(word in words for word in model.split())


GPUS = Rule(
    id="gpus",
    reads="`nvidia-smi --query-gpu`, `dcgmi discovery -l`",
    expects="the number of GPUs and the model of the instance type",
    severity="isolate",
    remedy=REPLACE,
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 0",
    check=_check_gpus,
    is_short=True,
)

_OTHER_BRANCH = "name an image with this driver, or change `software.driver`, then `gpuctl up`"


def _check_driver(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield a stale driver, and one of another branch than the cluster file's."""
    if _MISMATCH in facts.smi_error:
        yield Deviation("NVIDIA driver", "the version of its libraries", facts.smi_error)
    for finding in from_checks(facts, "NVIDIA driver branch"):
        yield Deviation(finding.subject, finding.expected, finding.seen, "isolate", _OTHER_BRANCH)


DRIVER = Rule(
    id="driver",
    reads="`nvidia-smi`",
    expects="a running driver of the version of its libraries, of the branch `software.driver`",
    severity="isolate",
    remedy="reboot the node: the driver was updated after the boot",
    source="nvidia-smi's error NVML_ERROR_LIB_RM_VERSION_MISMATCH (18), NVML API Reference",
    check=_check_driver,
    is_short=True,
)


FABRIC_MANAGER = Rule(
    id="fabric-manager",
    reads="`nv-fabricmanager --version`, `systemctl is-active nvidia-fabricmanager`",
    expects="an active service of exactly the driver's version, with NVSwitch",
    severity="reboot",
    remedy="`systemctl restart nvidia-fabricmanager` on the node; if it fails, install the version"
    " of the driver, or reboot the node",
    source="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide (2026-11-22)",
    # Without it CUDA does not start on such types.
    check=lambda _, facts, __: from_checks(facts, "fabric manager version", "fabric manager"),
)


def _check_nvlink(_: str, facts: NodeFacts, fleet: AllFacts) -> Iterator[Deviation]:
    """Yield each GPU with links that are down."""
    for gpu, links in facts.nvlinks.items():
        if links < fleet.expected.nvlinks:
            yield Deviation(f"NVLinks of GPU {gpu}", f"{fleet.expected.nvlinks} up", str(links))


NVLINK = Rule(
    id="nvlink",
    reads="`nvidia-smi nvlink --status`",
    expects="12 links up for each A100, 18 for H100, H200, B200 and B300, with NVSwitch",
    severity="reset",
    remedy=f"`nvidia-smi --gpu-reset` on the node while no job runs, or {REBOOT}",
    source="awslabs/awsome-distributed-ai @95b939cd, efa-cheatsheet.md and healthcheck, check 3",
    check=_check_nvlink,
)


def _check_ecc(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each GPU with such errors."""
    for gpu in facts.gpus or ():
        if gpu.ecc:
            yield Deviation(f"uncorrectable ECC errors of GPU {gpu.index}", "0", str(gpu.ecc))


ECC = Rule(
    id="ecc",
    reads="`nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total`",
    expects="0 uncorrectable errors since the boot",
    severity="reset",
    remedy=f"`nvidia-smi --gpu-reset` on the node while no job runs, or {REBOOT}",
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 0",
    check=_check_ecc,
    is_short=True,
)


_NOTHING_NOW = "nothing now; replace the node if the number grows"


def _check_row_remapping(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield the gravest state of each GPU: failed, pending, or rows that were replaced."""
    for gpu in facts.remapped:
        of = f"of {gpu.bus}"
        if gpu.has_failed:
            yield Deviation(f"row remapping {of}", "no failure", "failed", "isolate", REPLACE)
        elif gpu.is_pending:
            yield Deviation(f"row remapping {of}", "nothing pending", "pending", "reset")
        elif gpu.uncorrectable:
            rows = f"{gpu.uncorrectable} rows remapped after uncorrectable errors"
            yield Deviation(f"row remapping {of}", "0 rows", rows, "watch", _NOTHING_NOW)


ROW_REMAPPING = Rule(
    id="row-remapping",
    reads="`nvidia-smi --query-remapped-rows`",
    expects="no pending and no failed remapping, no row with uncorrectable errors",
    severity="isolate",
    remedy="`nvidia-smi --gpu-reset` on the node while no job runs, or reboot the node: the row is"
    " then replaced",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt (from memory)",
    check=_check_row_remapping,
)


XID_SEVERITIES: dict[str, Severity] = {"replace": "isolate", "reboot": "reboot", "reset": "reset"}
"""The severity of each action of the table of Xid errors; the others are for watching."""


def _check_xid(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each distinct error, the gravest first."""
    for error in gpu_errors(facts.kernel_log or ()):
        yield Deviation(
            f"kernel log of {error.address}",
            "no error",
            f"{error.label}, {error.xid.meaning}",
            XID_SEVERITIES.get(error.xid.action, "watch"),
            error.xid.remedy,
        )


XID = Rule(
    id="xid",
    reads="`dmesg`, or else `journalctl --dmesg --boot`",
    expects="no Xid and no SXid since the boot; the severity is that of the error",
    severity="isolate",
    remedy="by the error's number: docs/look-up/health-rules.md",
    source="NVIDIA's Xid catalog of 2026-11-26, and AWS's reading of it (config/xid.py)",
    check=_check_xid,
    is_short=True,
)


def _check_throttling(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each GPU that is slowed down now."""
    for gpu, reasons in facts.slowdowns.items():
        yield Deviation(f"slowdown of GPU {gpu}", "none", "; ".join(reasons))


THROTTLING = Rule(
    id="throttling",
    reads="`nvidia-smi --query-gpu=clocks_event_reasons.…` (hw_slowdown, hw_thermal_slowdown,"
    " hw_power_brake_slowdown, sw_thermal_slowdown)",
    expects="no slowdown at this moment",
    severity="watch",
    remedy="check again under load; `gpuctl bisect` measures whether the node is slow, then replace"
    " it",
    source="nvidia-smi(1), Clocks Event Reasons; Azure NHC, check_gpu_clock_throttling",
    check=_check_throttling,
)


def _check_persistence(_: str, facts: NodeFacts, __: AllFacts) -> list[Deviation]:
    """Return how many GPUs have it off."""
    off = [gpu for gpu in facts.gpus or () if not gpu.is_persistent]
    seen = f"disabled on {len(off)} of {len(facts.gpus or ())} GPUs"
    return [Deviation("persistence mode", "enabled", seen)] if off else []


PERSISTENCE = Rule(
    id="persistence",
    reads="`nvidia-smi --query-gpu=persistence_mode`",
    expects="enabled on every GPU",
    severity="watch",
    remedy="`nvidia-smi -pm 1` on the node",
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 0",
    check=_check_persistence,
)


_DCGM_SEVERITIES: dict[int, Severity] = {1: "watch", 5: "watch", 6: "reset"}
"""DCGM's severities MONITOR, CONFIG and RESET: dcgm_errors.h of DCGM 4 (from memory; a published
output of 2026-08 has 5 for persistence mode). All others isolate."""


def _check_dcgm(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each failed test, and a diagnostic without a result."""
    if facts.dcgm_error:
        yield Deviation("DCGM's diagnostic", "a result", facts.dcgm_error)
    for failure in facts.dcgm:
        severity = _DCGM_SEVERITIES.get(failure.severity)
        yield Deviation(
            f"DCGM's {failure.test} on GPU {failure.gpu}", "passed", failure.text, severity
        )


DCGM = Rule(
    id="dcgm",
    reads="`dcgmi diag -r 3 -j`, with an hour as its limit",
    expects="every test passed or skipped",
    severity="isolate",
    remedy=REPLACE,
    source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
    check=_check_dcgm,
)
