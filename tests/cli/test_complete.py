"""Completion by the function that the shell really calls, from what this machine remembers."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shlex import quote

import pytest
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from cli import complete
from config.catalogue.instance_types import catalogue
from config.catalogue.regions import ZONES
from config.target import Target
from engine.record.history import History
from operations.first_files import gpu_models
from tests.cli.conftest import remember
from tests.cli.test_command import COMMAND, ROOT
from tests.engine.conftest import make_inventory, make_plan

pytestmark = pytest.mark.slow

SHOW_MODULES = """\
import json, sys
sys.argv = ["gpuctl"]
import gpuctl
try:
    gpuctl.main()
except SystemExit:
    pass
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def environment(remembered: Target) -> dict[str, str]:
    home = str(remembered.state.parents[1])
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": home, "XDG_STATE_HOME": home}


@pytest.fixture
def known(remembered: Target) -> Target:
    """A machine that knows two clusters on AWS, one in the lab `b`, and a run."""
    inventory = make_inventory(2)
    remember(inventory, remembered)
    remember(inventory.model_copy(update={"cluster": "debug", "bastion": None}), remembered)
    lab = Target("lab", "us-east-1", remembered.state.parent / "labs" / "b")
    remember(inventory.model_copy(update={"cluster": "in-lab"}), lab)
    with History(remembered.runs) as history:
        history.begin(make_plan())
    return remembered


LINES = {
    "st": ["status", "stop"],
    "lab fault ": ["list", "set", "clear"],
    "ssh ": ["debug", "demo"],
    "ssh de": ["debug", "demo"],
    "exec dem": ["demo"],
    "down dem": ["demo"],
    "status deb": ["debug"],
    "run file.yaml --cluster deb": ["debug"],
    "ssh demo ": ["node0", "node1", "bastion"],
    "ssh debug ": ["node0", "node1"],
    "ssh unknown ": [],
    "logs ": ["job-000001"],
    "results j": ["job-000001"],
    "stop j": ["job-000001"],
    "up file.yaml --reg": ["--region"],
    "--lab=b ssh ": ["in-lab"],
    "ssh --lab-name b ": ["in-lab"],
    "ssh --lab=b ": ["in-lab"],
    "--lab ssh ": [],
    "--lab=No_Lab ssh ": [],
    "capacity p6-": ["p6-b200.48xlarge", "p6-b300.48xlarge"],
    "buy p5e": ["p5e.48xlarge", "p5en.48xlarge"],
    "init --gpu L40": ["L40S"],
    "init --gpu g7e.4": ["g7e.48xlarge"],
    "status --region us-w": ["us-west-1", "us-west-2"],
    "--region eu-n": ["eu-north-1"],
    "buy p5.48xlarge --region us-west-2 --zone ": [f"us-west-2{letter}" for letter in "abcd"],
    "buy p5.48xlarge --zone us-east-2": [f"us-east-2{letter}" for letter in "abc"],
    "logs job-000001 --node ": ["node0", "node1"],
    "logs job --node node": ["node0", "node1"],
    "logs --node ": ["node0", "node1"],
    "logs unknown --node ": [],
    "exec demo --node ": ["node0", "node1", "bastion"],
    "up demo.yaml --replace ": ["node0", "node1", "all"],
    "plan quoted.yaml --replace node": ["node0", "node1"],
    "up missing.yaml --replace ": ["all"],
}
"""What follows `gpuctl` on a line, and what is offered for its last word."""


def test_bash_is_offered_what_this_machine_knows(known: Target, tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text("# ours\nname: demo\nnodes: 2\n")
    (tmp_path / "quoted.yaml").write_text("nodes: 2\nname:  'debug' # x\n")
    script = 'eval "$(_GPUCTL_COMPLETE=source_bash gpuctl)"; complete -p gpuctl\n'
    for line in LINES:
        words = f"gpuctl {line}".replace("=", " = ").split(" ")  # as bash splits them
        script += f"COMP_WORDS=({' '.join(word or quote(word) for word in words)})\n"
        script += (
            f"COMP_CWORD={len(words) - 1}; _gpuctl_completion gpuctl; echo ${{COMPREPLY[@]}}\n"
        )
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment(known), capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    registered, *offered = done.stdout.splitlines()
    assert registered == "complete -o default -F _gpuctl_completion gpuctl"
    assert dict(zip(LINES, map(str.split, offered), strict=True)) == LINES
    assert done.stderr == ""


def test_zsh_and_fish_show_what_a_name_means(known: Target) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "gpuctl logs ", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for shell, shown in (
        ("zsh", '_arguments \'*: :(("job-000001":"running on demo"))\'\n'),
        ("fish", "job-000001\trunning on demo\n"),
    ):
        done = subprocess.run(
            [str(COMMAND)],
            env=environment(known) | asked | {"_GPUCTL_COMPLETE": f"complete_{shell}"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == shown


def test_completion_asks_no_api_and_imports_nothing_heavy(known: Target) -> None:
    for words in (
        "gpuctl ssh ", "gpuctl ssh demo ", "gpuctl logs ", "gpuctl logs --node ",
        "gpuctl capacity ", "gpuctl init --gpu ", "gpuctl status --region ",
        "gpuctl buy p5.48xlarge --zone ", "gpuctl up x.yaml --replace ",
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", SHOW_MODULES],
            cwd=ROOT,
            env=environment(known)
            | {"_GPUCTL_COMPLETE": "complete_bash", "COMP_WORDS": words}
            | {"COMP_CWORD": str(words.count(" "))},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip()
        heavy = {"boto3", "pulumi", "asyncssh", "asyncio", "rich", "yaml", "provision"}
        modules = set(json.loads(done.stderr.splitlines()[-1]))
        assert heavy & modules == set()
        rooms = {name.split(".")[1] for name in modules if name.startswith("engine.")}
        assert rooms <= {"contract"}  # which needs the standard library alone


def test_the_shell_that_runs_is_taught(known: Target) -> None:
    shown, installed = (
        subprocess.run(
            ["bash", "-c", f"gpuctl {option}; exit $?"],
            env=environment(known), capture_output=True, text=True, check=True,
        ).stdout
        for option in ("--show-completion", "--install-completion")
    )  # fmt: skip
    assert "complete -o default -F _gpuctl_completion gpuctl" in shown
    script = Path(environment(known)["HOME"]) / ".bash_completions" / "gpuctl.sh"
    assert str(script) in installed
    assert script.read_text() == shown.removesuffix("\n")


def test_types_regions_and_zones_are_those_of_the_catalogue_and_of_aws() -> None:
    assert complete.instance_types() == list(catalogue())
    models = [model for model in gpu_models() if " " not in model]
    assert [word for word in complete.gpus() if "." not in word] == models
    known = {
        region: "".join(zone.name.removeprefix(region) for zone in zones)
        for region, zones in RegionsAndZonesBackend.zones.items()
        if not region.startswith(("cn-", "us-gov-"))
    }
    assert known == ZONES


HOSTILE = ("$(touch evil)", "`touch evil`", "a b", "a;b", "'", '"', "a:b", "-x", "x\ny")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_only_names_are_completed(known: Target, shell: str) -> None:
    """Both shells would evaluate other texts, which a team's bucket or a node may have brought."""
    with History(known.runs) as history:
        for number, name in enumerate(HOSTILE):
            plan = replace(make_plan(), run_id=f"{name}-{number:06}")
            history.begin(plan)
        history.begin(replace(make_plan(), run_id="job-aaaaaa", cluster="$(x)"))
    for name in HOSTILE:
        (known.state / "clusters" / name).mkdir()
        (known.state / "clusters" / name / "cluster.json").write_text("{}")
    inventory = known.state / "clusters" / "demo" / "inventory.json"
    there = json.loads(inventory.read_text())
    there["nodes"] += [{**there["nodes"][0], "name": name} for name in HOSTILE]
    inventory.write_text(json.dumps(there))
    for line in ("gpuctl ssh demo ", "gpuctl ssh ", "gpuctl logs "):
        done = subprocess.run(
            [str(COMMAND)],
            env=environment(known)
            | {"_GPUCTL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
            | {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout != ""
        assert "evil" not in done.stdout
        assert "$(x)" not in done.stdout
        assert "-x" not in done.stdout
