"""`make gpu-check` where there is no GPU, and what its record keeps of a machine with one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoke.gpu_check import NO_GPU, anonymous

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("smi", "said"),
    [
        (None, "gpu-check: this machine has no NVIDIA GPU: it has no nvidia-smi\n"),
        (
            "#!/bin/sh\necho 'No devices found.'\nexit 6\n",
            "gpu-check: nvidia-smi lists no GPU: No devices found.\n",
        ),
    ],
)
def test_a_machine_without_a_gpu_says_so_and_has_an_exit_code_for_it(
    smi: str | None, said: str, tmp_path: Path
) -> None:
    if smi is not None:
        (tmp_path / "nvidia-smi").write_text(smi)
        (tmp_path / "nvidia-smi").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "smoke.gpu_check"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (NO_GPU, "", said)
    assert not (tmp_path / "gpu-check.json").exists()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "GPU 0: NVIDIA H200 (UUID: GPU-0a1b2c3d-1111-2222-3333-0123456789ab)",
            "GPU 0: NVIDIA H200 (UUID: GPU-UUID)",
        ),
        ("    Serial Number                         : 1650922012345", "SERIAL"),
        ("<serial>1650922012345</serial>", "<serial>SERIAL</serial>"),
        ("<chassis_serial_number>1650922012345</chassis_serial_number>", ">SERIAL<"),
        ("    GPU PDI                  : 0x1650922012345", ": PDI"),
        ("<board_part_number>692-2G520</board_part_number>", "692-2G520"),
        ("MIG-0a1b2c3d-1111-2222-3333-0123456789ab", "MIG-UUID"),
        ("rank 0 on gpu9.example.org, gpu9", "rank 0 on HOST, HOST"),
        ("gpu90 stays", "gpu90 stays"),
    ],
)
def test_a_record_has_no_numbers_and_names_of_the_machine(text: str, kept: str) -> None:
    shown = anonymous(text, ("gpu9.example.org", "gpu9"))
    assert kept in shown
    assert "1650922012345" not in shown
    assert "0a1b2c3d" not in shown
