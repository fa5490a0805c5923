"""The command as a person meets it: help, errors, exit codes, what it imports."""

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from config.cluster.hosts_file import Host, HostsCluster
from provision.state.record import HostsRecord
from tests.engine.conftest import make_inventory
from tests.interrupts import INTERRUPTIBLE, until_idle

pytestmark = pytest.mark.slow

COMMAND = Path(sys.executable).with_name("gpuctl")
ROOT = Path(__file__).parent.parent.parent


def gpuctl(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed command, with no account and no lab in reach."""
    return subprocess.run(
        [str(COMMAND), *arguments],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AWS_EC2_METADATA_DISABLED": "true",
            **environment,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_a_folder_on_pythonpath_that_hides_a_room_is_named(tmp_path: Path) -> None:
    hiding = tmp_path / "elsewhere" / "config"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").touch()
    done = gpuctl("--help", home=tmp_path, PYTHONPATH=str(hiding.parent))
    assert done.returncode == 2
    assert done.stderr == (
        f"gpuctl: error: its package 'config' is hidden by {hiding}; "
        "unset PYTHONPATH, and install gpuctl on its own (uv tool install, pipx)\n"
    )


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['gpuctl', '--help']\n"
        "import gpuctl\n"
        "try: gpuctl.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'boto3', 'botocore', 'pulumi', 'asyncssh', 'rich', 'yaml', 'moto'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_plan_imports_the_program_while_it_waits_for_aws() -> None:
    """The import of pulumi_aws takes seconds of a processor."""
    program = "import sys, cli.commands.up, operations.rent; print('pulumi_aws' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_command_imports_no_other_command(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['gpuctl', 'ps']\n"
        "import gpuctl\n"
        "try: gpuctl.main()\n"
        "except SystemExit: pass\n"
        "others = {f'cli.commands.{name}' for name in ('up', 'run', 'lab', 'bisect')}\n"
        "print(sorted((others | {'cli.commands.ps'}) & set(sys.modules)), file=sys.stderr)\n"
    )
    home = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=home,
        check=True,
    )
    assert done.stderr == "['cli.commands.ps']\n"


def test_to_ask_for_a_lab_imports_nothing_heavy() -> None:
    """Every `gpuctl --lab` asks whether the lab runs."""
    program = "import sys, lab.lifecycle; print({'pydantic', 'yaml', 'moto'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_a_wheel_without_its_extra_says_which_to_install(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'moto':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import gpuctl\n"
        "gpuctl.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "lab", "start", "--lab=t-down"],
        cwd=ROOT, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "gpuctl: error: the lab needs moto, which is not installed; install gpuctl with its extra"
        " `lab`: uv tool install --force '.[lab]' in its checkout\n"
    )


def test_six_mistakes_of_different_kinds_are_six_lines(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: demo\n"
        "nodes: 0\n"
        "instance_type: p5.48xlage\n"
        "node_count: 3\n"
        "storage:\n"
        "  root: {gib: large}\n"
        "placement:\n"
        "  strategy: spread\n"
        "name: again\n"
    )
    done = gpuctl("validate", str(file), home=tmp_path)
    assert done.returncode == 2
    assert [line.removeprefix(f"{file}:") for line in done.stderr.splitlines()] == [
        "2:8: E202 'nodes' is 0, below 1; use 1 to 512",
        "3:16: E204 unknown instance type 'p5.48xlage'; "
        "nearest: p5.48xlarge, p5e.48xlarge, p5.4xlarge",
        "4:1: E101 unknown key 'node_count'; allowed here: name, nodes, instance_type, region, "
        "image, placement, capacity, network, instance_profile, storage, software, setup, "
        "lifetime, budget, tags",
        "6:15: E103 'storage.root.gib' is the text 'large', must be a whole number; "
        "write digits only, such as 2",
        "8:13: E201 'placement.strategy' is 'spread', which is not allowed; use cluster or none",
        "9:1: E003 'name' is given twice, on lines 1 and 9; keep one of them",
    ]


@pytest.mark.parametrize("command", ["plan", "up", "validate", "run"])
def test_a_missing_file_is_one_line_and_exit_2(command: str, tmp_path: Path) -> None:
    done = gpuctl(command, "nowhere.yaml", home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gpuctl: error: nowhere.yaml")
    assert done.stderr.count("\n") == 1


def test_a_command_that_is_no_command_is_exit_2(tmp_path: Path) -> None:
    done = gpuctl("upp", home=tmp_path)
    assert done.returncode == 2
    assert "upp" in done.stderr


def test_no_region_is_one_line(tmp_path: Path) -> None:
    done = gpuctl("plan", "stacks/demo.yaml", home=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "gpuctl: error: no AWS region is known; "
        "set `region:` in the cluster file, --region, or AWS_REGION\n"
    )


UNKNOWN = "gpuctl: error: this machine knows no cluster 'demo', and no AWS region to look for it; "


@pytest.mark.parametrize("command", [("down", "--yes"), ("ssh",), ("health",), ("extend", "1h")])
def test_a_cluster_that_nobody_knows_is_not_looked_for_without_a_region(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    line = (command[0], "demo", *command[1:])
    done = gpuctl(*line, home=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"{UNKNOWN}set --region, or AWS_REGION\n")
    record = HostsRecord(
        name="lab7",
        id="aaaa",
        file=HostsCluster(name="lab7", hosts=(Host(address="10.0.0.7"),)),
        created=datetime.now(UTC),
        status="failed",
    )
    folder = tmp_path / ".local/state/gpuctl/aws/hosts/clusters/lab7"
    folder.mkdir(parents=True)
    (folder / "hosts.json").write_text(record.model_dump_json())
    assert gpuctl(*line, home=tmp_path).stderr == (
        f"{UNKNOWN}it knows lab7; set --region, or AWS_REGION\n"
    )
    status = gpuctl("status", home=tmp_path)  # of a person without AWS
    assert (status.returncode, status.stderr) == (0, "")
    assert status.stdout.startswith("lab7: failed since ")


def test_no_credentials_is_one_line_and_nothing_is_created(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: c\nnodes: 1\ninstance_type: p5.48xlarge\nnetwork: {ssh_from: 198.51.100.7/32}\n"
    )
    done = gpuctl("--region", "us-east-1", "plan", str(file), home=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("gpuctl: error: ")
    assert "credentials" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["status"], ["ps"]])
def test_looking_at_nothing_is_fine_when_the_lab_is_down(
    command: list[str], tmp_path: Path
) -> None:
    done = gpuctl("--lab-name", "t-down", *command, home=tmp_path)
    assert done.returncode == 0
    assert done.stdout in {"No cluster exists.\n", "No run yet.\n"}


@pytest.mark.parametrize("command", [["lab", "status"], ["up", "stacks/demo.yaml"]])
def test_a_name_that_no_lab_can_have_is_the_users_mistake(
    command: list[str], tmp_path: Path
) -> None:
    done = gpuctl("--lab-name", "No Lab", *command, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpuctl: error: 'No Lab' is no name for a lab; use 1 to 16 ")
    assert done.stderr.count("\n") == 1


def test_a_named_lab_is_meant_by_every_message(tmp_path: Path) -> None:
    chosen = ("--lab-name", "t-down")
    done = gpuctl(*chosen, "lab", "status", home=tmp_path)
    assert done.stdout.splitlines()[0] == "Lab t-down is down."
    now = json.loads(gpuctl(*chosen, "lab", "status", "--json", home=tmp_path).stdout)
    assert (now["name"], now["up"], now["machines"]) == ("t-down", False, [])
    assert all(other["up"] for other in now["others"])
    done = gpuctl(*chosen, "lab", "fault", "clear", home=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "gpuctl: error: the lab is not running; start it with `gpuctl --lab-name t-down lab"
        " start`\n",
    )
    done = gpuctl(*chosen, "down", "demo", "--yes", home=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "gpuctl: error: the lab is not running, so no cluster exists in it; start one with `gpuctl"
        " --lab-name t-down up FILE`\n",
    )


def test_an_unknown_run_is_one_line(tmp_path: Path) -> None:
    done = gpuctl("results", "nothing", home=tmp_path)
    assert done.returncode == 2
    assert "nothing" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_schema_is_json_and_describes_every_field(tmp_path: Path) -> None:
    import json

    cluster = json.loads(gpuctl("schema", "cluster", home=tmp_path).stdout)
    run = json.loads(gpuctl("schema", "run", home=tmp_path).stdout)
    of_clusters = (cluster["then"], cluster["else"])
    for mapping in (*of_clusters, *(run["$defs"][name] for name in ("Task", "Mpi", "Ray", "Role"))):
        assert mapping["additionalProperties"] is False
        assert all("description" in field for field in mapping["properties"].values())


def test_templates_are_listed_with_type_and_summary(tmp_path: Path) -> None:
    import json

    folder = tmp_path / ".config" / "gpuctl" / "templates"
    folder.mkdir(parents=True)
    mine = folder / "mine.yaml"
    mine.write_text("# All of ours begin here. Ask Ada.\nextends: hello\nname: mine\n")
    lines = gpuctl("templates", home=tmp_path).stdout.splitlines()
    of_mine = next(line for line in lines if line.startswith("mine "))
    assert " ".join(of_mine.split()) == f"mine task All of ours begin here. ({mine})"
    of_hello = next(line for line in lines if line.startswith("hello "))
    assert " ".join(of_hello.split()) == (
        "hello task Every node says who it is: the smallest run there is."
    )
    found = json.loads(gpuctl("templates", "--json", home=tmp_path).stdout)
    assert {"name": "mine", "type": "task", "is_users": True}.items() <= {
        key: value for entry in found if entry["name"] == "mine" for key, value in entry.items()
    }.items()


def test_a_template_of_ones_own_is_told_on_stderr(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "gpuctl" / "templates"
    folder.mkdir(parents=True)
    (folder / "hello.yaml").write_text("type: task\nname: mine\ncommands: [x]\n")
    file = tmp_path / "run.yaml"
    file.write_text("extends: hello\n")
    saved = tmp_path / "inventory.json"
    saved.write_text(make_inventory(1).model_dump_json())
    done = gpuctl("run", str(file), "--dry-run", "--inventory", str(saved), home=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("Run mine-")
    assert done.stderr.startswith(f"{file}:1:10: W203 template 'hello' is your own ")


def test_doctor_names_what_it_sees_and_what_to_do(tmp_path: Path) -> None:
    import json

    done = gpuctl("doctor", "--json", home=tmp_path)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 1
    assert {"Pulumi's engine", "backend", "credentials"} <= set(checks)
    assert checks["backend"]["seen"] == f"file://{tmp_path}/.local/state/gpuctl/aws/pulumi"
    assert checks["credentials"] == {
        "name": "credentials",
        "seen": "no AWS region is known",
        "remedy": "set `region:` in the cluster file, --region, or AWS_REGION",
        "needed": True,
    }
    plugin = checks["session-manager-plugin"]
    assert not plugin["needed"], "only network.access: ssm asks for it"
    assert ("install AWS's session-manager-plugin" in plugin["remedy"]) == (
        plugin["seen"] == "session-manager-plugin is not on PATH; network.access: ssm needs it"
    )


@pytest.mark.parametrize(
    ("version", "seen", "is_refused"),
    [
        ("1.2.694.0", "{} 1.2.694.0", False),
        (
            "1.2.497.0",
            "session-manager-plugin is 1.2.497.0, older than 1.2.536.0;"
            " network.access: ssm needs it",
            True,
        ),
    ],
)
def test_doctor_shows_the_version_of_session_managers_plugin(
    tmp_path: Path, version: str, seen: str, is_refused: bool
) -> None:
    import json

    plugin = tmp_path / "session-manager-plugin"
    plugin.write_text(f"#!/bin/sh\necho {version}\n")
    plugin.chmod(0o755)
    done = gpuctl("doctor", "--json", home=tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    found = checks["session-manager-plugin"]
    assert found["seen"] == seen.format(plugin)
    assert found["remedy"].startswith("install AWS's") == is_refused


@pytest.mark.parametrize(("command", "code"), [("run", 125), ("validate", 1)])
@pytest.mark.parametrize("before", [[], ["--region", "us-east-1"]])
def test_a_failure_of_gpuctls_own_is_125_from_run_alone(
    command: str, code: int, before: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import config.loading.load
    from cli.main import main
    from config.errors import RunError

    def fails(_: Path) -> None:
        raise RunError("it broke", "mend it")

    monkeypatch.setattr(config.loading.load, "load_run", fails)
    monkeypatch.setattr(config.loading.load, "check", fails)
    monkeypatch.setattr(sys, "argv", ["gpuctl", *before, command, "x.yaml"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code


def test_ctrl_c_does_not_wait_for_a_service_that_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = subprocess.Popen(
            [*INTERRUPTIBLE, str(COMMAND), "--region", "us-east-1", "capacity", "p4d.24xlarge"],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_ACCESS_KEY_ID": "nobody",
                "AWS_SECRET_ACCESS_KEY": "nothing",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process, silent.accept()[0] as question:
            assert question.recv(1)
            until_idle(process.pid)
            process.send_signal(signal.SIGINT)
            try:
                # a silent service is waited for 60 s, ten times over
                output, _ = process.communicate(timeout=50)
            finally:
                process.kill()
    assert output == "gpuctl: interrupted; `gpuctl --region us-east-1 status` shows what exists\n"
    assert process.returncode == 130


def test_garbage_is_collected_seldom() -> None:
    program = (
        "import atexit, gc, sys, gpuctl\n"
        "atexit.register(lambda: print(gc.isenabled(), *gc.get_threshold()))\n"
        "sys.argv = ['gpuctl', '--version']\n"
        "gpuctl.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True 20000 10 10"
