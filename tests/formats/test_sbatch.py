"""Slurm's batch scripts: the run file that each becomes, and what is said about it."""

import os
from pathlib import Path
from typing import Any

import pytest

from config.loading.load import check, load_run
from config.loading.overrides import Overrides, Substitutions
from config.run.run_file import Task
from formats.sbatch.header import read_header
from formats.sbatch.options import OPTIONS

BASH = "#!/bin/bash\n"


@pytest.fixture(autouse=True)
def _environment_of_a_submitter(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name not in ("PATH", "HOME"):
            monkeypatch.delenv(name)


def load(folder: Path, text: str, *given: str) -> Task:
    file = folder / "train.sbatch"
    file.write_text(text)
    run = load_run(file, Overrides(manifest=Substitutions(given)))
    assert isinstance(run, Task)
    return run


def job(folder: Path, header: str, *given: str) -> dict[str, Any]:
    """Return what the run file says beyond its defaults, of a script with these options."""
    text = f"{BASH}#SBATCH {header}\nsrun hostname\n"
    return load(folder, text, *given).model_dump(exclude_defaults=True)


def lines(folder: Path, text: str, *given: str) -> list[str]:
    file = folder / "train.sbatch"
    file.write_text(text)
    diagnostics = check(file, Overrides(manifest=Substitutions(given)))
    return [str(each).removeprefix(f"{file}:") for each in diagnostics]


def test_the_script_runs_on_node_0_and_the_others_wait(tmp_path: Path) -> None:
    run = load(tmp_path, f"{BASH}#SBATCH -N2\nsrun hostname\n")
    assert (run.nodes, run.startup_order, run.stop_criteria) == (2, "workers-first", "master-done")
    assert run.roles["worker"].commands == ("exec sleep infinity",)
    assert run.workdir == str(tmp_path)
    assert run.name == "train"
    (command,) = run.commands
    assert command == (
        "cat > \"$GPUCTL_RUN_FOLDER\"/bin/slurm/slurm_script <<'GPUCTL_END_OF_SCRIPT'\n"
        "#!/bin/bash\n#SBATCH -N2\nsrun hostname\nGPUCTL_END_OF_SCRIPT\n"
        'exec "$GPUCTL_RUN_FOLDER"/bin/slurm/sbatch \'{"time_s": 0}\'\n'
    )


@pytest.mark.parametrize(
    ("header", "nodes"),
    [
        ("--nodes=4", 4),
        ("-N 4", 4),
        ("-N4", 4),
        ("--ntasks-per-n=8 -n16", 2),  # getopt_long(3) takes names that are cut
        ("--nodes=2-4", {"min": 2, "max": 4}),
        ("--nodes=1 --nodes=2", 2),
        ("-vN2", 2),
        ("--nodes='2' # 3", 2),
        ("--ntasks=16 --ntasks-per-node=8", 2),
        ("-n 9 --tasks-per-node=4", 3),
        ("--ntasks=16", 1),
        ("--gpus=16 --gpus-per-node=4", 4),
        ("--gpus=16", 2),
        ("--ntasks=32 --gpus-per-task=1", 4),
        ("--ntasks=8 --gpus-per-task=1 --gres=gpu:4", 2),
        ("--exclusive", 1),
    ],
)
def test_nodes(tmp_path: Path, header: str, nodes: Any) -> None:
    assert job(tmp_path, header).get("nodes", 1) == nodes


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 90 * 60),
        ("30:00", 1800),
        ("0:30", 60),  # Slurm counts whole minutes
        ("02:00:00", 7200),
        ("1-0", 86400),
        ("1-12:30", 131400),
        ("2-00:00:01", 172860),
        ("UNLIMITED", None),
        ("0", None),
    ],
)
def test_time(tmp_path: Path, time: str, seconds: int | None) -> None:
    run = load(tmp_path, f"{BASH}#SBATCH --time={time}\ntrue\n")
    assert run.max_duration == seconds


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("--gres=gpu:4", {"gpus": "4.."}),
        ("--gres=gpu", {"gpus": "1.."}),
        ("--gres=gpu:a100:2(S:0)", {"gpus": "2..", "gpu": ("A100",)}),
        ("--gpus-per-node=h100:8", {"gpus": "8..", "gpu": ("H100",)}),
        ("-N2 -G 16", {"gpus": "8.."}),
        ("--mem=64G", {"memory": "65536MB.."}),
        ("--mem=900", {"memory": "900MB.."}),
        ("--mem=0", None),
        ("-c 8", None),
    ],
)
def test_what_the_nodes_must_be(
    tmp_path: Path, header: str, expected: dict[str, Any] | None
) -> None:
    assert job(tmp_path, header).get("requires") == expected


def test_variables_of_the_header(tmp_path: Path) -> None:
    run = job(tmp_path, "-J My.Job -n8 -c 4 --ntasks-per-node=4 -A me --gpus-per-node=8 --mem=1G")
    assert run["name"] == "my-job"
    assert run["env"] == {
        "SLURM_JOB_NAME": "My.Job",
        "SLURM_JOB_ACCOUNT": "me",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_GPUS_PER_NODE": "8",
        "SLURM_NTASKS": "8",
        "SLURM_NPROCS": "8",
        "SLURM_MEM_PER_NODE": "1024",
    }


def test_output_and_error_come_back(tmp_path: Path) -> None:
    run = job(tmp_path, "-o ./logs/%x-%4j.out -e %j.err --open-mode=append -t 1")
    assert run["outputs"] == ("logs/*-*.out", "*.err")
    settings = '{"error": "%j.err", "open-mode": "append", "output": "./logs/%x-%4j.out"'
    assert settings in run["commands"][0]
    assert "outputs" not in job(tmp_path, "-o /scratch/%j.out")


def test_header_ends_at_the_first_command(tmp_path: Path) -> None:
    text = f"{BASH}#SBATCH -N2\n\n # SBATCH -N3\n##SBATCH -N4\n #SBATCH -N5\nx=1\n#SBATCH -N6\n"
    assert load(tmp_path, text).nodes == 2
    assert lines(tmp_path, text) == [
        "8:1: W206 '#SBATCH -N6' is behind the first command: sbatch reads no more; move it to the"
        " lines before, if it should count"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#SBATCH -A me -p gpu\n#SBATCH --mail-user=a@b.c\n", [
            "2:9: W206 --account, --partition, --mail-user: left out, a run has no accounting;"
            " nothing to do: the job runs without",
        ]),
        ("#SBATCH -N1 --constraint=ib\n", [
            "2:13: W206 '--constraint' is left out: the cluster file chooses the instance type;"
            " remove it if the job does not need it",
        ]),
        ("#SBATCH --array=0-3\n", [
            "2:9: E228 '--array' cannot be carried out; `--set SLURM_ARRAY_TASK_ID=N` runs one task"
            " of it; a loop with `--queue --detach` all",
        ]),
        ("#SBATCH -d afterok:1\n", [
            "2:9: E228 '--dependency' cannot be carried out; `gpuctl run A && gpuctl run B`, or"
            " `gpuctl wait`",
        ]),
        ("#SBATCH -N two\n", ["2:12: E203 '--nodes' is 'two'; write a number, or a range: 2, 2-4"]),
        ("#SBATCH --ntasks=$N\n", [
            "2:18: E203 '--ntasks' is '$N'; write a whole number from 1 on",
        ]),
        ("#SBATCH -t soon\n", [
            "2:12: E203 '--time' is 'soon'; write minutes, hours:minutes:seconds or"
            " days-hours:minutes:seconds",
        ]),
        ("#SBATCH --gpu=8\n", [
            "2:9: E203 sbatch has no option '--gpu'; correct its name: gpuctl knows sbatch's"
            " options",
        ]),
        ("#SBATCH -Y 8\n", [
            "2:9: E203 sbatch has no option '-Y'; correct it: gpuctl knows sbatch's options",
        ]),
        ("#SBATCH --job-name='x\n", [
            "2:1: E203 a quote (') is not closed; close the quote: sbatch refuses the script",
        ]),
        ("#SBATCH nodes=2\n", [
            "2:9: E203 'nodes=2' is no option; write an option, such as --nodes=2: sbatch refuses"
            " the script",
        ]),
        ("#SBATCH -N\n", ["2:9: E203 '--nodes' has no value; write --nodes=VALUE"]),
        ("#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n", [
            "3:9: E203 'hetjob' begins the second part of a heterogeneous job; write a script for"
            " each part: a run has nodes of one kind",
        ]),
        ("#SBATCH --gres=gpu:mi300:8\n", [
            "2:9: W206 '--gres' is left out: no GPU is called mi300 here; the number is compared;"
            " remove it if the job does not need it",
        ]),
        ("#SBATCH --signal=USR1@90\n", [
            "2:9: W206 '--signal' is left out: without `--time` there is no limit before which to"
            " send it; remove it if the job does not need it",
        ]),
        ("#SBATCH --export=A-B=1\n", [
            "2:18: E207 'A-B' names no variable; write NAME or NAME=value",
        ]),
    ],
)  # fmt: skip
def test_exact_lines(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert lines(tmp_path, f"{BASH}{text}true\n") == expected


def test_a_script_that_sbatch_refuses(tmp_path: Path) -> None:
    assert lines(tmp_path, "#SBATCH -N1\ntrue\n") == [
        "1:1: E203 the script does not begin with '#!'; begin it with #!/bin/bash: sbatch refuses"
        " the script"
    ]
    (line,) = lines(tmp_path, "#!/bin/bash\r\n#SBATCH -N1\r\ntrue\r\n")
    assert line.startswith("1:1: E203 the script has line ends of DOS;")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "#!/bin/bash\n#SBATCH -N1\ncat >a <<EOF\na\n  EOF\nsrun ./a\n",
            ["3:1: E248 the script has a here-document without its end: EOF has spaces before or"],
        ),
        ("#!/usr/bin/env bash\n#SBATCH -N1\n  echo 'a\n", ["3:3: E248 the script has no ' that"]),
        ("#! /bin/sh -l\n#SBATCH -N1\ntrue\nif true; then\n  ls\n\n",
         ["5:3: E248 the script ends within a command: an if, for, case or { is open; correct it:"
          " bash does not run what follows as it is written"]),
        ("#!/usr/bin/python3\n#SBATCH -N1\nprint('it')\nif True: print(1)\n", []),
    ],
)  # fmt: skip
def test_a_script_that_bash_cannot_read(tmp_path: Path, script: str, expected: list[str]) -> None:
    found = lines(tmp_path, script)
    assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected


def test_a_script_without_options_is_one_by_its_name(tmp_path: Path) -> None:
    assert load(tmp_path, f"{BASH}hostname\n").name == "train"


def test_one_task_of_an_array(tmp_path: Path) -> None:
    env = job(tmp_path, "--array=1,4-8:2%2", "SLURM_ARRAY_TASK_ID=6")["env"]
    assert {name: value for name, value in env.items() if "ARRAY" in name} == {
        "SLURM_ARRAY_TASK_ID": "6",
        "SLURM_ARRAY_TASK_COUNT": "4",
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "8",
        "SLURM_ARRAY_TASK_STEP": "2",
    }
    text = f"{BASH}#SBATCH --array=0-3\ntrue\n"
    assert lines(tmp_path, text, "SLURM_ARRAY_TASK_ID=4") == [
        "2:17: E203 --set SLURM_ARRAY_TASK_ID is '4', which '--array' does not have; write one of"
        " its indexes"
    ]


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        ("", {"EPOCHS": "3", "TEXT": "$${X}"}),
        ("--export=ALL", {"EPOCHS": "3", "TEXT": "$${X}"}),
        ("--export=ALL,EPOCHS=5,NEW=1", {"EPOCHS": "3", "TEXT": "$${X}", "NEW": "1"}),
        ("--export=EPOCHS,NEW=1",
         {"EPOCHS": "3", "NEW": "1", "SLURM_EXPORT_ENV": "EPOCHS,NEW=1"}),
        ("--export=HF_TOKEN",
         {"HF_TOKEN": {"secret": "HF_TOKEN"}, "SLURM_EXPORT_ENV": "HF_TOKEN"}),
        ("--export=NONE", {"SLURM_EXPORT_ENV": "NONE"}),
    ],
)  # fmt: skip
def test_the_environment_travels(
    tmp_path: Path, export: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"LANG": "de_DE", "SSH_AUTH_SOCK": "/x", "AWS_PROFILE": "me", "GPUCTL_X": "1"}
    given = {"EPOCHS": "3", "TEXT": "${X}", "HF_TOKEN": "hf_1", "SLURM_JOB_ID": "7"}
    for name, value in {**here, **given}.items():
        monkeypatch.setenv(name, value)
    env = job(tmp_path, f"-N1 {export}")["env"]
    del env["SLURM_JOB_NAME"]
    assert env == expected


def test_an_array_without_end_takes_no_memory(tmp_path: Path) -> None:
    endless = ",".join(["0-999999999"] * 1000)
    env = job(tmp_path, f"--array={endless}", "SLURM_ARRAY_TASK_ID=999999999")["env"]
    assert env["SLURM_ARRAY_TASK_COUNT"] == str(10**12)
    assert (env["SLURM_ARRAY_TASK_MIN"], env["SLURM_ARRAY_TASK_MAX"]) == ("0", "999999999")


def test_a_secret_that_the_script_names_travels_as_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_1")
    run = load(tmp_path, f"{BASH}#SBATCH -N1\nlogin --token ${{HF_TOKEN}}\n")
    assert run.model_dump()["env"]["HF_TOKEN"] == {"secret": "HF_TOKEN"}


def test_folder_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path)
    assert job(tmp_path, "--chdir=code")["workdir"] == f"{tmp_path}/code"
    assert job(tmp_path, "-N1", "SLURM_SUBMIT_DIR=code")["workdir"] == f"{tmp_path}/code"
    (tmp_path / "code" / "train.sbatch").write_text(f"{BASH}#SBATCH -N1\ntrue\n")
    (warning,) = check(Path("code/train.sbatch"))
    assert str(warning) == (
        "code/train.sbatch:1:1: W206 the job starts in the script's folder; sbatch would start it"
        " in yours; `--set SLURM_SUBMIT_DIR=.` sends the folder in which you are"
    )
    assert job(tmp_path, "-D /home/somebody/else")["workdir"] == str(tmp_path)
    assert lines(tmp_path, f"{BASH}#SBATCH -D /home/somebody/else\ntrue\n") == [
        "2:9: W206 '--chdir' is left out: /home/somebody/else is no folder of this machine; remove"
        " it if the job does not need it"
    ]


def test_image_of_pyxis(tmp_path: Path) -> None:
    image = "--container-image='nvcr.io#nvidia/pytorch:25.03-py3'"  # '#' begins a comment
    run = job(tmp_path, f"{image} --container-mounts=/data:/data:ro,/fsx")
    assert run["image"] == "nvcr.io/nvidia/pytorch:25.03-py3"
    assert run["volumes"] == ("/data:/data", "/fsx:/fsx")


def test_a_script_with_the_end_of_the_copy_in_it(tmp_path: Path) -> None:
    run = load(tmp_path, f"{BASH}#SBATCH -N1\ncat <<GPUCTL_END_OF_SCRIPT\nGPUCTL_END_OF_SCRIPT\n")
    assert run.commands[0].count("\nGPUCTL_END_OF_SCRIPT_\n") == 1


def test_words_of_the_header() -> None:
    header = read_header('#!x\n#SBATCH --comment="a b"  -J\\ x --mem=1G#2\n#SBATCH\t-N\t2\n')
    assert [(given.option.name, given.value) for given in header.options] == [
        ("comment", "a b"),
        ("job-name", " x"),
        ("mem", "1G#2"[:2]),
        ("nodes", "2"),
    ]


def test_every_option_is_once_in_the_table() -> None:
    names = [option.name for option in OPTIONS]
    letters = [option.letter for option in OPTIONS if option.letter]
    assert len(set(names)) == len(names)
    assert len(set(letters)) == len(letters)
