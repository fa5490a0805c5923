"""Variables that scripts of the user's folder set: which files are read, and what is warned of."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.run.run_file import Task
from config.run.sources import folder_sources
from engine.plan.network.presets import PRESETS, warnings
from engine.plan.network.settings import user_settings
from engine.plan.script import with_scripts
from engine.plan.source_tree import Tree, tree_of
from tests.engine.golden import inventory_path
from tests.engine.plan.test_presets import HIDES, IFNAME

HARMFUL = "export NCCL_DEBUG=WARN\n"


def make(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def code(folder: Path, *commands: str) -> Tree:
    run = Task(type="task", name="job", commands=commands)
    return with_scripts(tree_of(folder_sources(folder)), run)


def warned(folder: Path, *commands: str) -> tuple[str, ...]:
    run = Task(type="task", name="job", commands=commands)
    return warnings(PRESETS["efa"], user_settings(run, code(folder, *commands).scripts))


@pytest.mark.parametrize(
    "command",
    [
        "bash train.sh",
        "bash -x ./train.sh --lr 1",
        "./train.sh",
        "source train.sh",
        ". ./train.sh && python3 x.py",
        "mpirun -np 16 --bind-to none ./train.sh",
        "srun bash -c 'exec ./train.sh'",
        'bash "$GPUCTL_WORKDIR/train.sh"',
        "set -e\nif true; then\n  sh train.sh\nfi",
    ],
)
def test_a_script_that_the_commands_start_is_warned_of(tmp_path: Path, command: str) -> None:
    make(tmp_path, {"train.sh": "#!/bin/bash\nset -e\nexport NCCL_SOCKET_IFNAME=eth0\n"})
    assert warned(tmp_path, command) == (f"train.sh:3: NCCL_SOCKET_IFNAME {IFNAME}",)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("cd examples/gpt && bash train.sh", "examples/gpt/train.sh"),
        ("bash scripts/../scripts/train.sh", "scripts/train.sh"),
        ("python3 -u src/train.py", "src/train.py"),
        ("set -a; source .env; python3 x.py", ".env"),
    ],
)
def test_a_script_in_another_folder_is_found(tmp_path: Path, command: str, path: str) -> None:
    text = (
        "import os\nos.environ['NCCL_DEBUG'] = 'WARN'\n" if path.endswith("py") else "\n" + HARMFUL
    )
    make(tmp_path, {path: text})
    assert warned(tmp_path, command) == (f"{path}:2: NCCL_DEBUG {HIDES}",)


@pytest.mark.parametrize(
    "line",
    [
        "source scripts/env.sh",
        'source "$(dirname "$0")/env.sh"',
        "source ${HERE}/env.sh",
        'cd "$(dirname "$0")"; . ./env.sh',
    ],
)
def test_a_script_of_a_script_is_found(tmp_path: Path, line: str) -> None:
    make(
        tmp_path,
        {"scripts/train.sh": f"{line}\nbash scripts/train.sh\n", "scripts/env.sh": HARMFUL},
    )
    assert warned(tmp_path, "bash scripts/train.sh") == (f"scripts/env.sh:1: NCCL_DEBUG {HIDES}",)


def test_a_continued_line_has_its_number(tmp_path: Path) -> None:
    make(tmp_path, {"t.sh": "mpirun \\\n  -np 2 \\\n  -x NCCL_DEBUG=WARN \\\n  ./a\n"})
    assert warned(tmp_path, "bash t.sh") == (f"t.sh:3: NCCL_DEBUG {HIDES}",)


@pytest.mark.parametrize(
    "line",
    [
        "os.environ.setdefault('NCCL_DEBUG', \"VERSION\")",
        "os.environ.update({'A': '1', 'NCCL_DEBUG': 'WARN'})",
        'os.putenv("NCCL_DEBUG", "WARN")',
    ],
)
def test_python_sets_variables_in_many_ways(tmp_path: Path, line: str) -> None:
    make(tmp_path, {"t.py": f"import os\n\n{line}\n"})
    assert warned(tmp_path, "torchrun t.py") == (f"t.py:3: NCCL_DEBUG {HIDES}",)


def test_a_script_that_nothing_names_is_not_read(tmp_path: Path) -> None:
    make(tmp_path, {"train.sh": "echo ok\n", "old/train.sh": HARMFUL, "eth.sh": HARMFUL})
    assert warned(tmp_path, "bash train.sh") == ()
    assert set(code(tmp_path, "bash train.sh").scripts) == {"train.sh"}


def test_comments_and_comparisons_of_a_script_are_not_warned_of(tmp_path: Path) -> None:
    make(tmp_path, {"t.sh": "# export NCCL_DEBUG=WARN\n[ $NCCL_DEBUG = WARN ] || echo\n"})
    make(tmp_path, {"t.py": "if os.environ['NCCL_DEBUG'] == 'WARN': pass  # NCCL_DEBUG=WARN\n"})
    assert warned(tmp_path, "bash t.sh; python3 t.py") == ()


def test_nothing_outside_of_the_working_folder_is_read(tmp_path: Path) -> None:
    make(
        tmp_path, {"outside.sh": HARMFUL, "mine/t.sh": "echo\n", "mine/.gitignore": "left-out.sh\n"}
    )
    make(tmp_path, {"mine/left-out.sh": HARMFUL})
    (tmp_path / "mine" / "link.sh").symlink_to(tmp_path / "outside.sh")
    commands = f"bash ../outside.sh; bash {tmp_path}/outside.sh; ./link.sh; bash left-out.sh"
    assert warned(tmp_path / "mine", commands) == ()


def test_large_files_and_binaries_are_not_read(tmp_path: Path) -> None:
    make(tmp_path, {"binary": f"\0\n{HARMFUL}", "large.sh": "#" * (16 << 20) + f"\n{HARMFUL}"})
    assert code(tmp_path, "./binary; bash large.sh").scripts == {}


def test_a_file_that_changed_since_it_was_hashed_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, {"t.sh": HARMFUL})
    tree = tree_of(folder_sources(tmp_path))
    (tmp_path / "t.sh").unlink()
    assert with_scripts(tree, Task(type="task", name="job", commands=("bash t.sh",))).scripts == {}


def test_run_warns_of_a_script_of_its_code(tmp_path: Path) -> None:
    make(tmp_path, {"mine/train.sh": HARMFUL})
    file = tmp_path / "run.yaml"
    file.write_text(
        "type: task\nname: job\nnodes: 2\nnetwork: efa\nworkdir: mine\ncommands: [bash train.sh]\n"
    )
    options = ["--dry-run", "--inventory", str(inventory_path(2))]
    answer = CliRunner().invoke(app, ["run", str(file), *options])
    assert answer.exit_code == 0, answer.output
    assert f"train.sh:1: NCCL_DEBUG {HIDES}" in " ".join(answer.output.split())


def test_a_script_with_bytes_that_are_no_text_is_read_around_them(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_bytes(b"# \xff\n" + HARMFUL.encode())
    assert warned(tmp_path, "bash train.sh") == (f"train.sh:2: NCCL_DEBUG {HIDES}",)
