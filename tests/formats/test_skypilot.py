"""SkyPilot's tasks: the run file that each becomes, and what is said about it."""

from pathlib import Path
from typing import Any

import pytest

from config.loading.load import check, load_run, unchecked_requirements
from config.loading.overrides import NO_SUBSTITUTIONS
from config.run.run_file import Task

RUN = "run: hostname\n"


def task(folder: Path, text: str) -> dict[str, Any]:
    """Return what the run file says beyond its defaults."""
    file = folder / "train.sky.yaml"
    file.write_text(text)
    run = load_run(file)
    assert isinstance(run, Task)
    return run.model_dump(exclude_defaults=True)


def lines(folder: Path, text: str) -> list[str]:
    file = folder / "train.sky.yaml"
    file.write_text(text)
    return [str(each).removeprefix(f"{file}:") for each in check(file)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("accelerators: H100:8", {"gpu": ("H100",), "gpus": "8", }),
        ("accelerators: H100", {"gpu": ("H100",), "gpus": "1"}),
        ("accelerators: {H100: 8}", {"gpu": ("H100",), "gpus": "8"}),
        ("accelerators: {'H100:8', 'H200:8'}", {"gpu": ("H100", "H200"), "gpus": "8"}),
        ("accelerators: [L4:1, H100:8]", {"gpu": ("L4", "H100"), "gpus": "1..8"}),
        ("accelerators: A10G:0.5", {"gpu": ("A10G",), "gpus": "1"}),
        ("accelerators: A100:8", {"gpu": ("A100",), "gpus": "8", "gpu_memory": "40GB"}),
        ("accelerators: A100-80GB:8", {"gpu": ("A100",), "gpus": "8", "gpu_memory": "80GB"}),
        ("accelerators: [tpu-v5e:8, T4:4]", {"gpu": ("T4",), "gpus": "4"}),
        ("cpus: 8", {"cpus": "8.."}),
        ("cpus: 4.5+", {"cpus": "5.."}),
        ("memory: 64+", {"memory": "64GB.."}),
        ("memory: 1.5tb", {"memory": "1.5TB.."}),
        ("disk_size: 256", {"disk": "256GB.."}),
        ("instance_type: p5.48xlarge", {"instance_types": ("p5.48xlarge",)}),
        ("infra: aws", None),
        ("infra: aws/us-east-1/us-east-1a", {"regions": ("us-east-1",), "zones": ("us-east-1a",)}),
        ("infra: AWS/*/us-east-1a", {"zones": ("us-east-1a",)}),
        ("infra: '*/us-east-1'", {"regions": ("us-east-1",)}),
        ("{cloud: aws, region: us-west-2, zone: us-west-2b}",
         {"regions": ("us-west-2",), "zones": ("us-west-2b",)}),
        ("use_spot: true", {"spot": True}),
        ("use_spot: off", {"spot": False}),
        ("{any_of: [{infra: gcp}, {infra: aws/us-east-1}, {infra: aws/us-west-2}]}",
         {"regions": ("us-east-1", "us-west-2")}),
        ("{ordered: [{accelerators: H100:8, use_spot: true}, {accelerators: H200:8}]}",
         {"gpu": ("H100", "H200"), "gpus": "8"}),
        ("{accelerators: T4, any_of: [{use_spot: true}, {region: us-east-1, use_spot: true}]}",
         {"gpu": ("T4",), "gpus": "1", "spot": True}),
    ],
)  # fmt: skip
def test_resources_are_what_the_nodes_must_be(
    tmp_path: Path, text: str, expected: dict[str, Any] | None
) -> None:
    run = task(tmp_path, f"resources:\n  {text}\n{RUN}")
    assert run.get("requires") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resources: {cloud: gcp}\n", [
            "1:20: E228 'resources.cloud' asks for gcp; gpuctl rents on AWS alone: remove it, or"
            " add aws",
        ]),
        ("resources: {any_of: [{infra: k8s/a/b}, {cloud: Azure}]}\n", [
            "1:21: E228 'resources.any_of' asks for k8s, azure; gpuctl rents on AWS alone: remove"
            " it, or add aws",
        ]),
        ("resources: {infra: aws/us-central1}\n", [
            "1:20: E228 'resources.infra' asks for region us-central1, which AWS does not have;"
            " write one of AWS's, such as us-east-1",
        ]),
        ("resources: {accelerators: tpu-v5e-8}\n", [
            "1:27: E228 'resources.accelerators' asks for tpu-v5e-8; gpuctl rents A100, H100, H200,"
            " B200, B300, T4, A10G, L4, L40S, RTX PRO 4500, RTX PRO Server 6000",
        ]),
        ("resources: {cpus: many, memory: 1PB}\n", [
            "1:19: E203 'resources.cpus' is 'many'; write 8 or 8+",
            "1:33: E203 'resources.memory' is '1PB'; write 64, 64+ or 64GB",
        ]),
        ("resources: {image_id: ami-1, ports: [8080, 9000-9010]}\n", [
            "1:13: W206 'resources.image_id' is left out: `image` of the cluster file chooses what"
            " its machines boot; remove it if the job does not need it",
            "1:44: W206 'resources.ports[1]' is left out: ports are forwarded one by one: write"
            " those that you open; remove it if the job does not need it",
        ]),
        ("resources: {disk_tier: best, autostop: 10}\n", [
            "1:13: W206 'resources.disk_tier' is left out: the cluster file has it; remove it if"
            " the job does not need it",
            "1:30: W206 'resources.autostop' is left out: `lifetime` of the cluster file ends a"
            " cluster; remove it if the job does not need it",
        ]),
        ("service: {replicas: 2}\n", [
            "1:1: E228 'service' cannot be carried out; gpuctl serves no endpoints; write a task"
            " that starts the server",
        ]),
        ("num_node: 2\n", [
            "1:1: W207 unknown key 'num_node': neither SkyPilot nor gpuctl has it; did you mean"
            " 'num_nodes'?",
        ]),
        ("num_nodes: two\n", [
            "1:12: E103 'num_nodes' is 'two', must be a whole number; write digits only, such as 2",
        ]),
        ("file_mounts:\n  /data: s3://bucket/key\n  /mnt: {name: b, mode: MOUNT}\n", [
            "2:3: E228 'file_mounts./data' is a bucket or a volume; write `storage.shared` into the"
            " cluster file, which every node mounts, or copy in `setup`: `aws s3 sync BUCKET"
            " /data`",
            "3:3: E228 'file_mounts./mnt' is a bucket or a volume; write `storage.shared` into the"
            " cluster file, which every node mounts, or copy in `setup`: `aws s3 sync BUCKET /mnt`",
        ]),
        ("secrets: {TOKEN: abcd}\n", [
            "1:11: E228 'secrets.TOKEN' is a secret that stands in the file; leave the value out"
            " (`TOKEN:`): it is taken from your environment or secrets",
        ]),
        ("envs: {1ST: x}\n", [
            "1:8: E207 '1ST' names no variable; write letters, digits and _",
        ]),
    ],
)  # fmt: skip
def test_exact_lines(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert lines(tmp_path, text + RUN) == expected


def test_scripts_that_bash_cannot_read_are_named_by_their_keys(tmp_path: Path) -> None:
    close = "close it in the same entry, which bash reads by itself (`- |` for several lines)"
    assert lines(tmp_path, "setup: |\n  if true; then\n    ls\nrun: |\n  ls\n  echo 'a\n") == [
        f"3:5: E248 'setup' ends within a command: an if, for, case or {{ is open; {close}",
        f"6:3: E248 'run' has no ' that closes; {close}",
    ]


def test_a_secret_that_stands_in_the_file_is_in_no_message(tmp_path: Path) -> None:
    assert "abcd" not in " ".join(lines(tmp_path, "secrets: {TOKEN: abcd}\n" + RUN))


def test_several_tasks_in_a_file_are_refused(tmp_path: Path) -> None:
    assert lines(tmp_path, "name: p\n---\nname: a\nrun: a\n---\nname: b\nrun: b\n") == [
        "2:1: E006 a second document begins; put one document into a file"
    ]


def test_a_task_without_commands_is_refused(tmp_path: Path) -> None:
    assert lines(tmp_path, "num_nodes: 2\n") == [
        "1:1: E102 'run' is missing; add the commands of the job"
    ]


def test_variables_are_what_python_makes_of_yaml_1_1(tmp_path: Path) -> None:
    envs = (
        "{SIZE: 13, ON: yes, LR: 1.0e-4, TEXT: 3e-4, OCTAL: 010, DOLLAR: '${HOME}/$X', NONE: ,"
        " EMPTY: ''}"
    )
    run = task(tmp_path, f"envs: {envs}\nsecrets: {{TOKEN: , OTHER: ''}}\n{RUN}")
    assert run["env"] == {
        "SIZE": "13",
        "ON": "True",
        "LR": "0.0001",
        "TEXT": "3e-4",
        "OCTAL": "8",
        "DOLLAR": "$${HOME}/$X",
        "NONE": {"secret": "NONE"},
        "EMPTY": "",
        "TOKEN": {"secret": "TOKEN"},
        "OTHER": {"secret": "OTHER"},
    }


def test_local_paths_are_of_the_folder_in_which_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "code").mkdir(parents=True)
    (tmp_path / "here" / "a.txt").touch()
    monkeypatch.chdir(tmp_path / "here")
    mounts = "{/data/$SIZE: a.txt, conf/a.txt: './${NAME}.txt', ~/x y: a.txt}"
    run = task(
        tmp_path, f"workdir: code\nenvs: {{SIZE: 13, NAME: a}}\nfile_mounts: {mounts}\n{RUN}"
    )
    here = tmp_path / "here"
    assert run["workdir"] == f"{here}/code"
    assert run["files"] == (
        f"{here}/a.txt:.skypilot/0",
        f"{here}/a.txt:conf/a.txt",
        f"{here}/a.txt:.skypilot/2",
    )
    first = run["commands"][0]
    assert 'cp -a -T -- "$GPUCTL_WORKDIR"/.skypilot/0 /data/13 ||' in first
    assert """cp -a -T -- "$GPUCTL_WORKDIR"/.skypilot/2 "$HOME"/'x y' ||""" in first


@pytest.mark.parametrize(
    ("text", "name"),
    [("name: My_Job.v2\n", "my-job-v2"), ("", "train"), ("name: 7\n", "task")],
)
def test_name(tmp_path: Path, text: str, name: str) -> None:
    assert task(tmp_path, text + RUN)["name"] == name


def test_a_repository_is_fetched_at_its_branch_or_commit(tmp_path: Path) -> None:
    url = "https://example.org/a/b"
    repo = task(tmp_path, f"workdir: {{url: {url}, ref: main}}\n{RUN}")["repo"]
    assert repo == {"url": url, "branch": "main"}
    repo = task(tmp_path, f"workdir: {{url: {url}, ref: {'a1' * 20}}}\n{RUN}")["repo"]
    assert repo == {"url": url, "commit": "a1" * 20}


def test_image_ports_and_nodes(tmp_path: Path) -> None:
    resources = "{image_id: 'docker:nvcr.io/nvidia/pytorch:25.03-py3', ports: 8080}"
    run = task(tmp_path, f"num_nodes: 3\nresources: {resources}\n{RUN}")
    assert run["nodes"] == 3
    assert run["image"] == "nvcr.io/nvidia/pytorch:25.03-py3"
    assert [str(port) for port in run["ports"]] == ["*:8080"]


def test_setup_is_a_shell_of_its_own(tmp_path: Path) -> None:
    setup, run = task(tmp_path, "setup: |\n  X=1\n  exit 0\nrun: echo $X\n")["commands"]
    assert setup.endswith("\n(\nX=1\nexit 0\n)")
    assert run == "echo $X"


def test_up_for_a_task_knows_its_gpus(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(f"resources: {{accelerators: H100:8}}\n{RUN}")
    assert unchecked_requirements(file, NO_SUBSTITUTIONS) is None
    run = load_run(file)
    assert run.requires is not None
    assert run.requires.name_a_type
