"""The life of a step's cluster: up, runs, and down in any case."""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import yaml

from config.errors import ExitCode, GpuctlError
from config.loading.load import load_cluster
from engine.record.result import Table
from provision.aws.clients import aws_errors, client
from smoke.tagged import left_behind, tagged
from smoke.versions import node_versions
from smoke.workplace import ANY_CODE, StepFailed, Workplace, uninterrupted

NOTHING_TO_CHANGE = "No changes: the cluster is what the file says."

_WAITS = "this run waits to be killed"
_WAITING = {
    "type": "task",
    "name": "smoke-killed",
    "nodes": 2,
    "commands": [f'echo "rank ${{DSTACK_NODE_RANK}}: {_WAITS}"', "sleep 900"],
    "max_duration": "20m",
}


class Remains(StepFailed):
    """The error that a cluster, or a part of it, may still cost money; `left` names the parts."""

    def __init__(self, message: str, hint: str, left: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.left = left


def use(
    site: Workplace,
    file: Path,
    runs: Sequence[Path],
    *,
    is_first: bool = False,
    is_healed: bool = False,
) -> None:
    """Bring the cluster up, do the runs, and remove the cluster, whatever happens.

    The first cluster of an account also gets a second `up`, which must find nothing to change, and
    a run that loses its client. One that `is_healed` loses a machine, and gets another. Raises
    Remains if something of the cluster is left.
    """
    name = load_cluster(file).name
    _check_nothing_exists(site, name)
    try:
        site.run("up", str(file), "--yes")
        site.ids.update(dict.fromkeys(tagged(site.target, name)))
        site.versions |= node_versions(site, name)
        if is_first or is_healed:
            _check_nothing_to_change(site, file)
        if is_healed:
            _lose_a_node(site, name)
            _check_nothing_to_change(site, file)
        for run in runs:
            _run(site, run, name)
        if is_first:
            _kill_a_client(site, name)
    except BaseException as error:
        reason = str(error) if isinstance(error, Exception) else "interrupted"
        print(f"\naws-smoke: {reason}: removing cluster {name}", flush=True)
        raise
    finally:
        with uninterrupted():
            remove(site, name)


def _check_nothing_exists(site: Workplace, name: str) -> None:
    """Raise StepFailed if something has the cluster's tag: its removal would remove that too."""
    if known := tagged(site.target, name):
        raise StepFailed(
            f"{len(known)} resources have the tag of a cluster {name} already: {known[0]}, …",
            f"if it is yours, run `{' '.join(site.words('down', name))}` first",
        )


def _check_nothing_to_change(site: Workplace, file: Path) -> None:
    if NOTHING_TO_CHANGE not in site.read("up", str(file), "--yes"):
        raise StepFailed("a second `up` of the same file changed something", "")
    site.note("a second `up` found nothing to change")


def _lose_a_node(site: Workplace, name: str) -> None:
    """Terminate node1 as its owner would by hand, and let `gpuctl heal` replace it alone."""
    before = _instances(site, name)
    lost = before["node1"]
    ec2, began = client(site.target, "ec2"), time.monotonic()
    with aws_errors():
        ec2.terminate_instances(InstanceIds=[lost])
        ec2.get_waiter("instance_terminated").wait(InstanceIds=[lost])
    site.note(f"node1 ({lost}) was terminated by hand, in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    site.run("heal", name, "--yes")
    after = _instances(site, name)
    if after["node0"] != before["node0"] or after["node1"] == lost:
        raise StepFailed(f"`gpuctl heal` made {after} of {before}: only node1 was lost", "")
    took = time.monotonic() - began
    site.note(f"`gpuctl heal` replaced node1 by {after['node1']} in {took:.0f} s, and kept node0")


def _instances(site: Workplace, name: str) -> dict[str, str]:
    """Return the instances of the cluster's nodes by their names."""
    (known,) = json.loads(site.read("status", name, "--json", quiet=True))
    return {node["name"]: node["instance_id"] for node in known["nodes"]}


def _run(site: Workplace, file: Path, cluster: str) -> None:
    """Do the run, and note its status, transport and bandwidths, also if it failed."""
    kind, name = (yaml.safe_load(file.read_text())[key] for key in ("type", "name"))
    words = ("run", str(file), "--cluster", cluster)
    code = site.run(*words, codes=ANY_CODE)
    if kind == "nccl-tests" and code != ExitCode.OWN_FAILURE:
        for line in takewhile(bool, site.read("results", name, quiet=True).splitlines()):
            site.note(line)
        document = json.loads(site.read("results", name, "--json", quiet=True))
        for table in document["tables"]:
            for line in table_lines(Table.model_validate(table)):
                site.note(line)
    site.check(words, code)


def _kill_a_client(site: Workplace, cluster: str) -> None:
    """Start a run, and kill its client as a crash would; the run goes on until the cluster ends."""
    file = site.folder / "smoke-killed.run.yaml"
    file.write_text(yaml.safe_dump(_WAITING))
    command = ("run", str(file), "--cluster", cluster)
    with site.running(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.rstrip().endswith(_WAITS):
                process.kill()
                break
    if process.returncode != -9:
        raise StepFailed(f"the run ended by itself, with exit code {process.returncode}", "")
    site.note("the client of a running job was killed with SIGKILL")


def remove(site: Workplace, name: str, *options: str) -> None:
    """Remove the cluster and look for what is left of it by its tag; Remains if something is."""
    again = " ".join(site.words("down", name, *options))
    code = site.run("down", name, "--yes", *options, codes=ANY_CODE)
    try:
        left = left_behind(site.target, name)
    except GpuctlError as error:
        raise Remains(
            f"whether anything of cluster {name} is left is not known: {error}",
            f"run `{again}` until it says that the cluster is gone",
            (f"cluster {name}",),
        ) from error
    if left:
        raise Remains(
            f"of cluster {name} there remain {', '.join(left)}, which may cost money",
            f"run `{again}`",
            left,
        )
    if code == 0:
        _check_status(site, name)
    site.note(f"nothing has the tag of cluster {name}")


def _check_status(site: Workplace, name: str) -> None:
    """Check that gpuctl itself lists the cluster no more."""
    known = [cluster["name"] for cluster in json.loads(site.read("status", "--json", quiet=True))]
    if name in known:
        raise StepFailed(f"`gpuctl status` lists cluster {name}, of which nothing exists", "")


def table_lines(table: Table) -> Iterator[str]:
    """Yield the bandwidth of the table's largest size, and the verdicts of its gates."""
    title = table.facts.case.title if table.facts.case else table.facts.collective
    if table.rows and (half := table.rows[-1].out_of_place) is not None:
        yield f"{title}: busbw {half.busbw} GB/s at {table.rows[-1].size} bytes"
    for verdict in table.facts.gates:
        yield verdict.text
