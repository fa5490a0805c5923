"""Real torchrun on two machines: a rank that hangs is named, and its stack is kept."""

from pathlib import Path

import pytest

from tests.hosts.test_own_machines import Person, hosts_file, run_file
from tests.lab.conftest import Boot

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

JOB = """\
import os, signal, time
import torch
import torch.distributed as dist

class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 3 and dist.get_rank() == 3 and os.environ["FAULT"] != "none":
            if os.environ["FAULT"] == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1000)
        return torch.ones(2)

def train():
    for batch in torch.utils.data.DataLoader(Batches()):
        dist.all_reduce(batch)
    print("trained")

dist.init_process_group("gloo")
train()
"""


def test_rank_of_torchrun_that_hangs_is_named(boot: Boot, key: Path, tmp_path: Path) -> None:
    machines = [boot("frameworks", f"10.213.0.{number}") for number in (34, 35)]
    for machine in machines:
        machine.wait()
    person = Person(tmp_path / "home")
    person.home.mkdir()
    person("up", hosts_file(tmp_path, "lab4", machines, key), "--accept-new-host-keys", "--yes")
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(JOB)
    job = {"type": "torchrun", "procs_per_node": 2, "commands": ["python3 train.py"]}
    job |= {"workdir": str(code), "hang": {"after": "20s", "action": "stop"}}
    reasons = {
        "stuck": "rank 3 (node1) waits in Batches.__getitem__ (train.py:13); the 3 others wait in"
        " all_reduce (train.py:18)",
        "stopped": "rank 3 (node1) is stopped (by SIGSTOP or SIGTSTP)",
    }
    for fault, reason in reasons.items():
        output = person("run", run_file(tmp_path, fault, **job, env={"FAULT": fault}), code=124)
        assert f"exit code 124: no node has printed a line for 20 s (hang): {reason}\n" in output
        (stacks,) = person.home.glob(f".local/state/gpuctl/**/{fault}-*/evidence/node1/ranks.txt")
        text = stacks.read_text()
        assert "  all_reduce (" in text
        assert "  Batches.__getitem__ (" in text
        folder = Path("/root") / stacks.parents[1].relative_to(person.home)
        assert f"Evidence: what was seen of the node is in {folder}\n" in output
    healthy = run_file(tmp_path, "healthy", **job, env={"FAULT": "none"})
    assert "trained" in person("run", healthy)
    person("down", "lab4", "--yes")
