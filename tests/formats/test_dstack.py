"""dstack's tasks: the run file that each becomes, and what is said about it."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from config.diagnostic import Diagnostic
from config.errors import InvalidFiles
from config.loading.load import check, load_cluster, load_run
from config.run.code import Repo
from config.run.env import Secret
from config.run.requirements import Requires
from config.run.retry import CAUSES
from config.run.run_file import Task
from engine.plan.launch_plan import launch_plan
from engine.plan.script import job_script
from formats.dstack.dstack_keys import KEYS, TABLE
from formats.dstack.references import Reference, split_text
from tests.engine.conftest import make_inventory
from tests.formats.dstack_cases import DSTACK_CASES, IMAGE, TASK


def task(folder: Path, text: str, name: str = "t.dstack.yml") -> Task:
    file = folder / name
    file.write_text(text)
    run = load_run(file)
    assert isinstance(run, Task)
    return run


def found(
    folder: Path, text: str, name: str = "t.dstack.yml", *, is_strict: bool = False
) -> list[Diagnostic]:
    file = folder / name
    file.write_text(text)
    return list(check(file, is_strict=is_strict))


def texts(folder: Path, text: str, name: str = "t.dstack.yml") -> list[str]:
    start = f"{folder / name}:"
    return [str(one).removeprefix(start) for one in found(folder, text, name)]


@pytest.mark.parametrize(("text", "expected"), DSTACK_CASES)
def test_exact_lines(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert texts(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "is_dstacks"),
    [
        ("a.dstack.yml", TASK, True),
        (".dstack.yaml", TASK, True),
        ("a.yaml", TASK, False),
        ("a.yaml", TASK + "resources: {gpu: 8}\n", True),
        ("a.yaml", TASK + "repos: ['.']\n", True),
        ("a.yaml", TASK + "files: [a.py]\n", False),
        ("a.yaml", TASK + "on_stop: destroy\n", False),
        ("a.yaml", TASK.replace("type: task", "type: mpi") + "repos: ['.']\n", False),
        ("a.dstack.yml", TASK.replace("type: task", "type: mpi"), False),
    ],
)
def test_a_file_is_dstacks_by_name_or_key(
    tmp_path: Path, name: str, text: str, is_dstacks: bool
) -> None:
    codes = {one.code for one in found(tmp_path, text + "colour: red\n", name)}
    assert ("W207" in codes, "E101" in codes) == (is_dstacks, not is_dstacks)


def test_an_unknown_key_is_an_error_if_strict(tmp_path: Path) -> None:
    text = TASK + "nods: 2\npriority: 3\n"
    assert [one.code for one in found(tmp_path, text, is_strict=True)] == ["E101", "W206"]
    with pytest.raises(InvalidFiles) as refused:
        load_run(tmp_path / "t.dstack.yml", is_strict=True)
    assert str(refused.value) == (
        f"{tmp_path}/t.dstack.yml:4:1: E101 unknown key 'nods': neither dstack nor gpuctl has it;"
        " did you mean 'nodes'?"
    )


def test_a_task_is_not_for_up(tmp_path: Path) -> None:
    (tmp_path / "t.dstack.yml").write_text(TASK)
    with pytest.raises(InvalidFiles) as refused:
        load_cluster(tmp_path / "t.dstack.yml")
    assert str(refused.value) == (
        f"{tmp_path}/t.dstack.yml:1:1: E107 this is a task of dstack; give it to `gpuctl run`"
    )


def test_a_key_of_dstack_is_not_taken_for_one_of_ours(tmp_path: Path) -> None:
    (line,) = texts(tmp_path, TASK.replace("task", "mpi") + "repos: ['.']\n", "a.yaml")
    assert line == "4:1: E101 unknown key 'repos'; dstack's tasks have it: docs/do/dstack.md"


def test_files_travel_in_both_forms(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("1\n")
    files = "files: [a.py, {local_path: b.py, path: lib/c.py}]\noutputs: [out/]\n"
    run = task(tmp_path, TASK + files)
    assert run.files == ("a.py", "b.py:lib/c.py")
    assert run.outputs == ("out/",)


@pytest.mark.parametrize(
    ("repos", "workdir", "repo"),
    [
        ("['.']", ".", None),
        ("[{local_path: ., path: .}]", ".", None),
        ("['https://h:8/a']", None, Repo(url="https://h:8/a")),
        ("['git@h:a/b']", None, Repo(url="git@h:a/b")),
        (
            f"[{{url: 'https://h/a', branch: b, hash: {'0' * 40}}}]",
            None,
            Repo(url="https://h/a", branch="b", commit="0" * 40),
        ),
    ],
)
def test_the_repository_travels(
    tmp_path: Path, repos: str, workdir: str | None, repo: Repo | None
) -> None:
    run = task(tmp_path, f"{TASK}repos: {repos}\n")
    assert (run.workdir, run.repo) == (workdir, repo)


@pytest.mark.parametrize("form", ["'.:{}'", "{{local_path: ., path: '{}'}}"])
def test_the_repository_is_copied_to_its_place(tmp_path: Path, form: str) -> None:
    there, work = tmp_path / "there", tmp_path / "work"
    work.mkdir()
    (work / "a.py").write_text("1\n")
    run = task(tmp_path, f"{TASK}repos: [{form.format(there)}]\n")
    assert run.workdir == "."
    run_script(run, GPUCTL_WORKDIR=str(work))
    assert (there / "a.py").read_text() == "1\n"


def test_a_repository_below_the_working_folder_is_that_folder(tmp_path: Path) -> None:
    assert texts(tmp_path, f"{TASK}repos: ['.:./src']\n") == [
        "4:9: W206 'repos[0]' goes to ./src, below the folder where the job starts: it is that"
        " folder; write no path"
    ]


def test_files_with_places_outside_of_the_working_folder_are_copied_there(tmp_path: Path) -> None:
    home, there, work = (tmp_path / name for name in ("home", "there it is", "work"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1\n")
    (tmp_path / "b.py").write_text("2\n")
    text = f"files: ['src:{there}', {{local_path: b.py, path: ~/lib/c.py}}]\n"
    run = task(tmp_path, TASK + text)
    assert run.files == ("src:.dstack/0", "b.py:.dstack/1")
    for folder in (there, home):
        folder.mkdir()  # what is there stays
        (folder / "kept").write_text("")
    (work / ".dstack" / "0").mkdir(parents=True)
    (work / ".dstack" / "0" / "a.py").write_text("1\n")
    (work / ".dstack" / "1").write_text("2\n")
    run_script(run, GPUCTL_WORKDIR=str(work), HOME=str(home))
    assert sorted(path.name for path in there.iterdir()) == ["a.py", "kept"]
    assert (home / "lib" / "c.py").read_text() == "2\n"


def test_every_key_of_the_table_is_accepted(tmp_path: Path) -> None:
    refused = {"type", "name", "commands", "image", "groups", "entrypoint", "registry_auth"}
    for key in KEYS:
        if key.name not in refused:
            lines = texts(tmp_path, f"{TASK}{key.name}: null\n")
            assert lines == [], key.name


def test_gpuctls_own_keys_work_in_dstacks_files(tmp_path: Path) -> None:
    run = task(tmp_path, TASK + "on_stop: destroy\nnetwork: tcp\nready: {port: 80}\nretry: true\n")
    assert (run.on_stop, run.network, run.ready.port) == ("destroy", "tcp", 80)


@pytest.mark.parametrize(
    ("written", "on", "node_wait"),
    [
        ("true", CAUSES, 3600),
        ("{on_events: [interruption], duration: 4h}", ("node-lost", "preemption"), 14400),
        (
            "{on_events: [no-capacity, error]}",
            ("node-lost", "exit-code", "no-output", "network", "startup"),
            3600,
        ),
    ],
)
def test_what_dstack_retries(
    tmp_path: Path, written: str, on: tuple[str, ...], node_wait: int
) -> None:
    run = task(tmp_path, TASK + f"retry: {written}\n")
    assert run.retry is not None
    assert (run.retry.attempts, run.retry.on) == (1000, on)
    assert run.retry.node_wait == node_wait


def test_a_run_needs_no_capacity_so_nothing_is_retried(tmp_path: Path) -> None:
    assert texts(tmp_path, TASK + "retry: {on_events: [no-capacity]}\n") == [
        "4:20: W206 'retry.on_events' is left out: a run has its nodes when it starts; remove it if"
        " the job does not need it"
    ]


@pytest.mark.parametrize(
    ("retry", "is_dstacks"),
    [("true", True), ("{duration: 1h}", True), ("{attempts: 2}", False), ("{}", False)],
)
def test_a_form_of_retry_makes_a_file_dstacks(tmp_path: Path, retry: str, is_dstacks: bool) -> None:
    text = TASK + f"retry: {retry}\ncolour: red\n"
    codes = {one.code for one in found(tmp_path, text, "a.yaml")}
    assert ("W207" in codes, "E101" in codes) == (is_dstacks, not is_dstacks)


def test_gpuctls_retry_works_in_dstacks_files(tmp_path: Path) -> None:
    run = task(tmp_path, TASK + "retry: {attempts: 4, backoff: 1m}\n")
    assert run.retry is not None
    assert (run.retry.attempts, run.retry.backoff) == (4, 60)


def test_a_task_may_extend_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    templates = tmp_path / "gpuctl" / "templates"
    templates.mkdir(parents=True)
    (templates / "base.yaml").write_text(TASK.replace("name: t", "name: base\nnodes: 3"))
    run = task(tmp_path, "type: task\nextends: base\nverify: null\nresources: {gpu: 8}\n")
    assert (run.name, run.nodes, run.commands) == ("base", 3, ("hostname",))
    assert run.requires == Requires(gpus="8")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("3600", 3600),
        ("'90'", 90),
        ("90m", 5400),
        ("1w", 604_800),
        ("2 h", 7200),
        ("1000000s", 1_000_020),
        ("100d", 8_640_000),
        ("off", None),
        ("false", None),
        ("'off'", None),
        ("true", None),
    ],
)
def test_max_duration(tmp_path: Path, written: str, seconds: int | None) -> None:
    assert task(tmp_path, f"{TASK}max_duration: {written}\n").max_duration == seconds


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("train.dstack.yml", "train"),
        ("My Train_2.dstack.yaml", "my-train-2"),
        ("2.dstack.yml", "task"),
    ],
)
def test_a_run_without_name_has_the_files(tmp_path: Path, file: str, name: str) -> None:
    assert task(tmp_path, "type: task\ncommands: [a]\n", file).name == name


def test_a_file_without_name_has_its_folders(tmp_path: Path) -> None:
    folder = tmp_path / "trainer"
    folder.mkdir()
    assert task(folder, "type: task\ncommands: [a]\n", ".dstack.yml").name == "trainer"


def test_a_name_has_41_letters(tmp_path: Path) -> None:
    name = "a" * 41
    assert task(tmp_path, TASK.replace("name: t", f"name: {name}")).name == name


def test_env(tmp_path: Path) -> None:
    text = (
        "env:\n  - A=1\n  - HF_TOKEN\n  - B=${{ secrets.KEY }}\n"
        "  - C=Bearer ${{ secrets.KEY }}'s\n  - D=$$x\n  - E=\n"
    )
    run = task(tmp_path, TASK + text)
    key = Secret(secret="KEY")
    assert run.env == {
        "A": "1",
        "HF_TOKEN": Secret(secret="HF_TOKEN"),
        "B": key,
        "KEY": key,
        "D": "$x",
        "E": "",
    }
    shown = subprocess.run(
        ["bash", "-c", job_script([*run.commands[:1], 'echo "$C"'])],
        capture_output=True,
        text=True,
        env={"KEY": "a b", "PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert shown.stdout.splitlines()[-1] == "Bearer a b's"


def test_a_mapping_of_variables_keeps_numbers_as_written(tmp_path: Path) -> None:
    run = task(tmp_path, TASK + "env: {PORT: 8080, LR: 1.10, NAME: x}\n")
    assert run.env == {"PORT": "8080", "LR": "1.10", "NAME": "x"}


def test_a_bare_name_is_a_secret_in_our_files_too(tmp_path: Path) -> None:
    run = task(tmp_path, TASK + "env: [A=1, HF_TOKEN]\n", "own.yaml")
    assert run.env == {"A": "1", "HF_TOKEN": Secret(secret="HF_TOKEN")}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ["a"]),
        ("$A ${B}", ["$A ${B}"]),
        ("$$ x", ["$", " x"]),
        ("$A $$", ["$A $$"]),
        ("a ${{ run.args }} b", ["a ", Reference("run.args"), " b"]),
        ("$$${{ a.b }}", ["$", Reference("a.b")]),
        ("$${{ a.b }}", ["$", "{{ a.b }}"]),
        ("x${{a.b}}$A", ["x", Reference("a.b"), "$A"]),
        ("", []),
    ],
)
def test_references_are_read_as_dstack_reads_them(text: str, parts: list[Any]) -> None:
    assert split_text(text) == parts


def test_run_name_and_arguments(tmp_path: Path) -> None:
    text = TASK.replace("[hostname]", "['a ${{ run.args }} ${{ run.name }}']")
    assert task(tmp_path, text).commands == ("a  t",)


def test_an_image_without_commands_runs_its_own(tmp_path: Path) -> None:
    run = task(tmp_path, IMAGE)
    assert run_script(run, GPUCTL_IMAGE_COMMAND="echo 'a  b' \\$c") == ["a  b $c"]
    (line,) = run_script(run)
    assert line.endswith("there is no image, or it has no command")


def test_an_entrypoint_gets_the_commands_as_arguments(tmp_path: Path) -> None:
    text = IMAGE + "entrypoint: bash -c\ncommands: ['echo a; echo b']\n"
    assert task(tmp_path, text).commands == ("exec bash -c 'echo a; echo b'",)


@pytest.mark.parametrize("user", ["root", "0", "0:0", "root:root"])
def test_root_is_what_commands_run_as(tmp_path: Path, user: str) -> None:
    assert task(tmp_path, f"{TASK}user: '{user}'\n").commands == ("hostname",)


def run_script(run: Task, **environment: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", job_script(run.commands)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "GPUCTL_NODE_NAME": "node0", **environment},
        check=False,
    )
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("user", "ids"), [("nobody", "65534 65534"), ("1234:2345", "1234 2345"), ("1234", "1234 0")]
)
def test_commands_run_as_the_user(tmp_path: Path, user: str, ids: str) -> None:
    text = TASK.replace("[hostname]", "['A=1', 'echo \"$(id -u) $(id -g) $A\"']")
    assert run_script(task(tmp_path, f"{text}user: '{user}'\n")) == [f"{ids} 1"]


def test_another_shell_runs_all_commands(tmp_path: Path) -> None:
    text = TASK.replace("[hostname]", "['A=1 # one', 'echo $A $0', 'false', 'echo no']")
    assert run_script(task(tmp_path, text + "shell: sh\n")) == ["1 /bin/sh"]


def test_commands_begin_in_the_working_dir(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    text = TASK.replace("[hostname]", "[pwd]")
    assert run_script(task(tmp_path, f"{text}working_dir: '{folder}'\n")) == [str(folder)]
    home = task(tmp_path, f"{text}working_dir: ~/x\n")
    assert run_script(home, HOME=str(tmp_path)) == [f"{tmp_path}/x"]


def test_a_volume_without_image_is_a_link_on_the_node(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "to" / "target"
    text = TASK.replace("[hostname]", f"['echo x > {target}/file']")
    run = task(tmp_path, f"{text}volumes: ['{source}:{target}/']\n")
    assert [run_script(run), run_script(run)] == [[], []]
    assert (source / "file").read_text() == "x\n"
    target.unlink()
    target.mkdir()
    (target / "own").touch()
    (line,) = [line for line in run_script(run) if line.startswith("gpuctl:")]
    assert line == f"gpuctl: {target} exists on node0, so it cannot be {source}"
    assert not (target / "file").exists()


def test_folders_of_the_node_are_in_the_container(tmp_path: Path) -> None:
    volumes = "volumes: ['/a:/b', {instance_path: /c, path: /d, optional: true}]\n"
    run = task(tmp_path, IMAGE + "privileged: true\n" + volumes)
    assert (run.privileged, run.volumes) == (True, ("/a:/b", "/c:/d"))


@pytest.mark.parametrize(
    ("password", "expected"),
    [
        ("hunter2", "hunter2"),
        ("${{ secrets.KEY }}", Secret(secret="KEY")),
        ("${{ env.KEY }}", Secret(secret="KEY")),
        ("${{ env.PLAIN }}", "text"),
        ("a-${{ env.PLAIN }}", "a-text"),
    ],
)
def test_registry_auth(tmp_path: Path, password: str, expected: str | Secret) -> None:
    auth = f"registry_auth: {{username: $oauthtoken, password: '{password}'}}\n"
    run = task(tmp_path, IMAGE + "env: [KEY, PLAIN=text]\n" + auth)
    assert run.registry_auth is not None
    assert (run.registry_auth.username, run.registry_auth.password) == ("$oauthtoken", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu: H100:8", {"gpu": ("H100",), "gpus": "8"}),
        ("gpu: 'nvidia:A100,H100:80GB..:2..8'",
         {"gpu": ("A100", "H100"), "gpus": "2..8", "gpu_memory": "80GB.."}),
        ("gpu: 8", {"gpus": "8"}),
        ("gpu: 24GB", {"gpus": "1..", "gpu_memory": "24GB"}),
        ("gpu: {name: h100, count: {min: 2, max: 4}, memory: 80}",
         {"gpu": ("h100",), "gpus": "2..4", "gpu_memory": "80GB"}),
        ("gpu: {name: [A10G, RTX4090], total_memory: 1TB.., compute_capability: 8.0}",
         {"gpu": ("A10G",), "gpus": "1..", "gpu_memory_total": "1TB..",
          "compute_capability": "8.0"}),
        ("gpu: {compute_capability: [9, 0], count: '..4'}",
         {"gpus": "..4", "compute_capability": "9.0"}),
        ("{cpu: 8, memory: 64 gb, shm_size: 16}",
         {"cpus": "8..", "memory": "64GB..", "shm_size": "16GB"}),
        ("cpu: arm:4..8", {"arch": "arm64", "cpus": "4..8"}),
        ("cpu: {arch: x86, count: 4}", {"arch": "x86_64", "cpus": "4.."}),
        ("cpu: {min: 2}", {"cpus": "2.."}),
        ("memory: 512MB..1TB", {"memory": "512MB..1TB"}),
        ("disk: 500GB", {"disk": "500GB.."}),
        ("disk: {size: 1TB..}", {"disk": "1TB.."}),
    ],
)  # fmt: skip
def test_resources(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    written = text if text.startswith("{") else f"{{{text}}}"
    run = task(tmp_path, f"{TASK}resources: {written}\n")
    assert run.requires == Requires(**expected)


def test_what_a_profile_asks_for(tmp_path: Path) -> None:
    text = (
        "backends: [gcp, aws]\nregions: [us-east4, eu-west-1]\nspot_policy: spot\nmax_price: 30\n"
        "instance_types: [n1-standard-4, p5.48xlarge]\navailability_zones: [eu-west-1a]\n"
        "fleets: [mine, other/theirs, {name: last}]\n"
    )
    assert task(tmp_path, TASK + text).requires == Requires(
        instance_types=("p5.48xlarge",),
        regions=("eu-west-1",),
        zones=("eu-west-1a",),
        spot=True,
        max_price=30.0,
        clusters=("mine", "theirs", "last"),
    )


def test_ports(tmp_path: Path) -> None:
    text = "ports: [8000, '80:8001', '*:8002', {container_port: 8003}]\n"
    assert task(tmp_path, TASK + text).ports == ("8000", "80:8001", "*:8002", "*:8003")
    group = "type: task\ngroups: [{nodes: 2, commands: [a], ports: [9000]}]\n"
    assert task(tmp_path, group).ports == ("9000",)


def test_groups_are_roles(tmp_path: Path) -> None:
    text = (
        "type: task\nname: t\nenv: [A=1]\ngroups:\n"
        "  - {name: head, nodes: 2, commands: [head], resources: {cpu: 2, memory: 8GB}}\n"
        "  - {nodes: 1, commands: ['join ${{ groups[0].nodes[1].IP_ADDRESS }}:80'],"
        " resources: {cpu: 8, gpu: A100:8}}\n"
    )
    run = task(tmp_path, text)
    assert (run.nodes, {name: role.nodes for name, role in run.roles.items()}) == (
        3,
        {"master": None, "head": 1, "group-1": 1},
    )
    assert run.requires == Requires(gpu=("A100",), gpus="8", cpus="8..", memory="8GB..")
    nodes = launch_plan(run, make_inventory(3), "t-000000").nodes
    assert [node.role for node in nodes] == ["master", "head", "group-1"]
    assert ["\nhead\n" in node.script for node in nodes] == [True, True, False]
    assert "\njoin 10.213.1.11:80\n" in nodes[2].script


@pytest.mark.parametrize(
    ("text", "makes_environment"),
    [
        (TASK, False),
        (TASK + "python: 3.10\n", True),
        (TASK.replace("hostname", "cd x && pip install y"), True),
        (TASK.replace("hostname", "uv run x"), True),
        (TASK.replace("hostname", "pipes"), False),
        (IMAGE + "commands: [pip install x]\n", False),
    ],
)
def test_an_environment_with_python(tmp_path: Path, text: str, makes_environment: bool) -> None:
    assert ("\nuv venv " in task(tmp_path, text).commands[0]) == makes_environment


def test_the_environment_is_activated(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "uv").write_text(
        '#!/bin/bash\necho "uv $*"\nfor folder; do :; done\nmkdir -p "$folder/bin"\n'
        'echo "echo activated" > "$folder/bin/activate"\n'
    )
    (programs / "uv").chmod(0o755)
    run = task(tmp_path, TASK.replace("hostname", "echo here") + "python: 3.10\n")
    folder = {"GPUCTL_RUN_FOLDER": str(tmp_path), "GPUCTL_NODE_RANK": "1"}
    assert run_script(run, PATH=f"{programs}:/usr/bin:/bin", **folder) == [
        f"uv venv --quiet --seed --python 3.10 {tmp_path}/venv-1",
        "activated",
        "here",
    ]


def test_the_uv_of_nodes_is_ours(tmp_path: Path) -> None:
    (first,) = task(tmp_path, TASK + "python: 3.12\n").commands
    ours = (Path(__file__).parents[2] / "scripts" / "uv.txt").read_text()
    assert [f"sha256:{digest}" in ours for digest in re.findall(r"gpuctl_sum=(\w+)", first)] == [
        True,
        True,
    ]
    versions = set(re.findall(r"uv-([0-9.]+[0-9])", first))
    assert [f"uv=={version} " in ours for version in versions] == [True]


def test_nvcc_must_be_on_the_node(tmp_path: Path) -> None:
    assert run_script(task(tmp_path, TASK + "nvcc: true\n"), PATH="/usr/bin:/bin") == [
        "gpuctl: node0 has no nvcc; take an `image` of a cluster file with CUDA"
    ]


def test_keys_without_a_value_say_nothing(tmp_path: Path) -> None:
    text = "retry: false\nports: []\ndstack: false\nnvcc: false\ntags: {}\npython: null\n"
    assert texts(tmp_path, TASK + text) == []


def test_each_key_is_once_in_the_table() -> None:
    assert len(TABLE) == len(KEYS)
