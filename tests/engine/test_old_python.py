"""The agent runs under the Pythons of the images: AL2023's 3.9, Ubuntu's 3.10 and 3.12.

3.9 is Debian's PyPy, which `scripts/setup tests` unpacks. CPython 3.9, 3.10 and 3.12 are not tried
here: neither Debian 12 nor PyPI has them. docs/understand/aws-truth.md says what was tried by hand.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import config
import engine.agent
import engine.contract
from config.folders import cache_home
from engine.contract.codec import to_json
from engine.session.bundle import agent_bundle
from tests.engine import one_python
from tests.engine.conftest import make_plan

UNPACKED = cache_home() / "pypy3"
PYPY = shutil.which("pypy3.9", path=f"{os.environ['PATH']}:{UNPACKED}/usr/bin")
LIBRARIES = UNPACKED / "usr/lib/x86_64-linux-gnu"
VERMIN = str(Path(sys.executable).with_name("vermin"))
SOURCES = [
    *sorted(Path(engine.agent.__file__).parent.rglob("*.py")),
    *sorted(Path(engine.contract.__file__).parent.glob("*.py")),
    *(
        Path(config.__file__).with_name(name)
        for name in ("bounds.py", "identifiers.py", "number_ranges.py", "xid.py")
    ),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_agents_syntax_is_that_of_3_9(source: Path) -> None:
    ast.parse(source.read_text(), feature_version=(3, 9))


def newest_feature(*paths: Path) -> str:
    """The lowest Python that has all that the files use, as vermin finds it."""
    command = [VERMIN, "--no-tips", "--format", "parsable", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1].split(":")[4]


def test_the_agent_uses_nothing_that_came_after_3_9(tmp_path: Path) -> None:
    assert newest_feature(*SOURCES) == "3.9"
    later = tmp_path / "later.py"
    later.write_text("from datetime import UTC\n")
    assert newest_feature(later) == "3.11"  # vermin knows the library


def test_the_entrance_of_containers_runs_on_3_6() -> None:
    (entrance,) = (path for path in SOURCES if path.name == "exec_client.py")
    assert tuple(map(int, newest_feature(entrance).split("."))) <= (3, 6)


@pytest.mark.slow
@pytest.mark.skipif(PYPY is None, reason="`scripts/setup tests` unpacks Debian's pypy3")
def test_a_run_on_python_3_9(tmp_path: Path) -> None:
    """Supervisor and workers: output of both ranks, and the exit code of the one that fails."""
    (tmp_path / "agent.pyz").write_bytes(agent_bundle().data)
    # The failure comes when rank 0 has printed its line: it ends the other rank.
    printed = tmp_path / "printed"
    command = (
        'echo "rank $DSTACK_NODE_RANK of $DSTACK_NODES_NUM"\n'
        f"if [ $DSTACK_NODE_RANK = 0 ]; then touch {printed}; fi\n"
        f"until [ -e {printed} ]; do sleep 0.1; done\n"
        "exit $((DSTACK_NODE_RANK * 7))"
    )
    plan = json.loads(json.dumps(to_json(make_plan(commands=(command,)))))
    for node in plan["nodes"]:  # the plan's paths are the nodes' own
        node["environment"]["GPUCTL_CHECKPOINT_DIR"] = str(tmp_path / "checkpoints")
        folder = tmp_path / f"node{node['rank']}"
        node["files"] = {str(folder / Path(p).name): text for p, text in node["files"].items()}
    assert PYPY is not None
    done = subprocess.run(
        [PYPY, one_python.__file__, str(tmp_path / "agent.pyz"), str(tmp_path)],
        input=json.dumps(plan),
        env=os.environ | {"LD_LIBRARY_PATH": str(LIBRARIES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict == {
        "status": "failed",
        "exit_code": 7,
        "reason": "node1: exited with 7",
        "modules": len(SOURCES),
        "python": [3, 9],
    }
    for rank in (0, 1):
        assert (tmp_path / f"node{rank}/rank-{rank}.log").read_text() == f"rank {rank} of 2\n"
