"""The script on a node, as bash runs it, with the lab's stand-ins for the tools of GPUs and EFA."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.machines.hardware_faults import kernel_line
from provision.health.facts import NodeFacts, read
from provision.health.gather import Form, script
from provision.health.judge import findings
from provision.health.model import AllFacts, Expected
from tests.provision.health.examples import texts

pytestmark = pytest.mark.slow

STAND_INS = Path(__file__).parents[3] / "lab/images/stand_ins"
TYPE = {
    "gpus": 8, "gpu": "A100", "gpu_memory_mib": 40960, "nvswitch": True, "efa": 4,
    "driver": "595.91.07", "fabricmanager": "595.91.07",
}  # fmt: skip
EXPECTED = Expected(8, "A100", 12, 4, has_gpudirect=True, addresses={"localhost": "127.0.0.1"})


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder with the tools of a p4d; its `faults.json` says what is broken."""
    (tmp_path / "instance-type.json").write_text(json.dumps(TYPE))
    for name in ("nvidia-smi", "fi_info", "dcgmi"):
        text = (STAND_INS / f"{name.replace('-', '_')}.py").read_text()
        text = text.replace("/etc/gpuctl-lab", str(tmp_path))
        program(tmp_path, name, text.replace("#!/usr/bin/python3", f"#!{sys.executable}"))
    program(tmp_path, "mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.7'\n")
    program(tmp_path, "dmesg", "#!/bin/sh\necho 'Linux version 7'\n")
    program(tmp_path, "verify", "#!/bin/sh\necho 'ok: GPUs: 8'\n")
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def facts(node: Path, form: Form = "full", **faults: Any) -> NodeFacts:
    (node / "faults.json").write_text(json.dumps(faults))
    text = script(EXPECTED, form).replace("verify=/opt/gpuctl/verify", f"verify={node}/verify")
    text = text.replace("/sys/", f"{node}/sys/")
    path = f"{node}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-s"], input=text, env=os.environ | {"PATH": path}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return read(done.stdout)


def found(node: Path, **faults: Any) -> list[str]:
    """What the rules find, without what is this machine's: its disks and limits."""
    seen = texts(list(findings(AllFacts(EXPECTED, {"node0": facts(node, **faults)}))))
    return [text for text in seen if "free " not in text and "locked memory" not in text]


def test_the_script_is_shellcheck_clean() -> None:
    """Without SC2317: `bash -c` calls the functions; SC2016: it expands the words itself."""
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "--exclude=SC2317,SC2016", "-"],
        input=script(EXPECTED, "full"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_a_good_node_says_everything(node: Path) -> None:
    seen = facts(node)
    assert seen.gpus is not None
    assert [gpu.name for gpu in seen.gpus] == ["NVIDIA A100-SXM4-40GB"] * 8
    assert (len(seen.remapped), seen.nvlinks) == (8, dict.fromkeys(range(8), 12))
    assert (seen.hmem, seen.kernel_log, seen.checks, seen.ended) == (4, (), {}, ())
    assert seen.versions["Open MPI"] == "4.1.7"
    assert seen.versions["kernel"] == os.uname().release
    assert "/" in {disk.path for disk in seen.disks}
    assert seen.clock is not None and seen.took > 0
    assert found(node) == []


def test_before_a_run_only_what_takes_no_time_is_asked(node: Path) -> None:
    seen = facts(node, "short")
    assert seen.gpus is not None and len(seen.gpus) == 8
    assert (seen.kernel_log, seen.clock is None) == ((), False)
    assert (seen.checks, seen.names, seen.versions, seen.remapped, seen.hmem) == (
        None, None, {}, (), None
    )  # fmt: skip


def test_the_kernels_efa_devices_are_those_of_its_driver(node: Path) -> None:
    drivers = node / "sys/bus/pci/drivers"
    for name, driver in (("rdmap16s27", "efa"), ("rdmap32s27", "efa"), ("mlx5_0", "mlx5_core")):
        (drivers / driver).mkdir(parents=True, exist_ok=True)
        device = node / "sys/class/infiniband" / name / "device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(drivers / driver)
    assert facts(node, "short").efa == 2


def test_what_the_tools_print_of_broken_gpus_is_understood(node: Path) -> None:
    broken = {"ecc": 2, "remap": "pending", "nvlink": 2, "slowdown": "thermal"}
    assert found(node, **broken, gpudirect="no") == [
        "reset node0 NVLinks of GPU 1: expected 12 up, actual 10",
        "reset node0 uncorrectable ECC errors of GPU 1: expected 0, actual 2",
        "reset node0 row remapping of 00000000:64:00.0: expected nothing pending, actual pending",
        "watch node0 slowdown of GPU 1: expected none, actual hardware; hardware, temperature",
        "watch node0 GPUDirect RDMA: expected 4 EFA devices with GPU memory, actual libfabric"
        " finds 0",
    ]
    assert found(node, gpus=7, remap="failure") == [
        "isolate node0 GPUs: expected 8, actual 7",
        "isolate node0 row remapping of 00000000:64:00.0: expected no failure, actual failed",
    ]


def test_a_driver_older_than_its_libraries(node: Path) -> None:
    assert found(node, library="595.99.01") == [
        "isolate node0 NVIDIA driver: expected the version of its libraries, actual Failed to"
        " initialize NVML: Driver/library version mismatch"
    ]


def test_an_xid_in_the_kernels_log(node: Path) -> None:
    line = "[ 47.08] NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', GPU has fallen off the bus."
    program(node, "dmesg", f'#!/bin/sh\necho "other"\necho "{line}"\n')
    assert found(node) == [
        "reboot node0 kernel log of 0000:64:00: expected no error, actual Xid 79, the GPU has"
        " fallen off the bus"
    ]


def test_a_gpu_that_hangs_ends_the_questions_about_gpus(node: Path) -> None:
    program(
        node,
        "timeout",
        '#!/bin/bash\ncase $* in *nvidia-smi*) exit 124;; esac\nshift 3\nexec "$@"\n',
    )
    seen = found(node)
    assert seen == [
        "isolate node0 GPUs: expected 8, actual nvidia-smi did not end in time",
        "reboot node0 facts about the GPUs: expected an answer in time, actual none",
    ]


def test_checks_that_are_not_on_the_node_are_found(node: Path) -> None:
    (node / "verify").unlink()
    assert found(node) == [
        "isolate node0 checks on the node: expected an end with 0 or 1, actual 127 (timeout:"
        f" failed to run command '{node}/verify': No such file or directory)"
    ]


@pytest.mark.parametrize(
    ("xid", "finding"),
    [
        ("64", "isolate node0 kernel log of 0000:64:00: expected no error, actual Xid 64, a faulty"
               " row or page of memory could not be recorded for remapping"),
        ("95", "reboot node0 kernel log of 0000:64:00: expected no error, actual Xid 95,"
               " uncontained ECC error"),
        ("159", "reset node0 kernel log of 0000:64:00: expected no error, actual Xid 159, error of"
                " the link between chips (CHI)"),
        ("62", "reset node0 kernel log of 0000:64:00: expected no error, actual Xid 62, the GPU's"
               " microcontroller halted"),
        ("154", "watch node0 kernel log of 0000:64:00: expected no error, actual Xid 154, the"
                " driver changed the action that it asks for"),
    ],
)  # fmt: skip
def test_an_xid_has_the_severity_of_nvidias_catalogue(node: Path, xid: str, finding: str) -> None:
    program(node, "dmesg", f'#!/bin/sh\necho "{kernel_line(xid)}"\n')
    assert found(node) == [finding]
