"""Completions of the shell for names of clusters, nodes, runs, instance types, regions and zones.

They come from files of this machine: completion calls no API, and imports nothing that could.
Others may have written the names in them. bash inserts a completion into the line as it is, and
zsh evaluates it: only texts that are names are completed.
"""

import json
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import typer

from cli.options import Options
from config.catalogue.regions import ZONES
from config.errors import InputError
from config.files import read_regular
from config.settings import export_state, settings
from operations.chosen_target import ChosenTarget

INSTANCE_TYPES = Path(__file__).parents[1] / "config" / "catalogue" / "instance_types.yaml"


def clusters(context: typer.Context) -> list[str]:
    """Return the names of the clusters of the target that the line means so far."""
    files = ("clusters/*/cluster.json", "hosts/clusters/*/hosts.json")
    names = (path.parent.name for file in files for path in _state(context).glob(file))
    return sorted(name for name in names if _is_name(name))


def nodes(context: typer.Context) -> list[str]:
    """Return the names of the nodes of the line's cluster, and `bastion` where it has one."""
    return _nodes(context, str(context.params.get("cluster")))


def nodes_of_file(context: typer.Context) -> list[str]:
    """Return the names of the nodes of the cluster file on the line, and `all`."""
    path = context.params.get("file")
    text = ""
    with suppress(OSError, ValueError):  # the command says what is wrong with the file
        text = read_regular(Path(str(path))).decode()
    name = re.search(r"^name: *['\"]?([A-Za-z0-9-]+)", text, re.MULTILINE)
    known = _nodes(context, name[1]) if name else []
    return [*(node for node in known if node != "bastion"), "all"]


def nodes_of_run(context: typer.Context) -> list[str]:
    """Return the names of the nodes of the run on the line, by default of the newest run."""
    run = context.params.get("run")
    for run_id, name, nodes, *_ in _runs(context):
        if run in (None, run_id, name) and isinstance(nodes, int):
            return [f"node{number}" for number in range(nodes)]
    return []


def instance_types() -> list[str]:
    """Return the names of the instance types with accelerators that gpuctl knows."""
    return re.findall(r"^  ([a-z0-9-]+\.[a-z0-9-]+):$", _types(), re.MULTILINE)


def gpus() -> list[str]:
    """Return the models of GPUs, then the names of the instance types."""
    line = r'^    gpu: {count: [1-9][0-9]*, model: "([A-Za-z0-9]+)"'
    return [*sorted(set(re.findall(line, _types(), re.MULTILINE))), *instance_types()]


def regions() -> list[str]:
    """Return AWS's regions by name."""
    return sorted(ZONES)


def zones(context: typer.Context) -> list[str]:
    """Return the zones of the line's region, or of the user's; of all if none is known."""
    region = _given(context).region
    with suppress(InputError):  # the settings are wrong
        region = region or settings({})["region"].value
    known = [region] if region in ZONES else regions()
    return [f"{name}{letter}" for name in known for letter in ZONES[str(name)]]


def _types() -> str:
    """Return the text of the catalogue of instance types: to parse it takes long."""
    return INSTANCE_TYPES.read_text(encoding="utf-8")


def _nodes(context: typer.Context, cluster: str) -> list[str]:
    path = _state(context) / "clusters" / cluster / "inventory.json"
    if not path.exists():
        path = _state(context) / "hosts" / "clusters" / cluster / "inventory.json"
    try:
        inventory = json.loads(path.read_bytes())
        names = [node["name"] for node in inventory["nodes"]]
        known = [name for name in names if _is_name(name)]
        return [*known, "bastion"] if inventory["bastion"] else known
    except (OSError, ValueError, LookupError, TypeError):
        return []


def runs(context: typer.Context) -> list[tuple[str, str]]:
    """Return the ids of the runs, newest first, each with its status and cluster."""
    return [
        (run_id, f"{status} on {cluster}")
        for run_id, _, _, status, cluster in _runs(context)
        if all(map(_is_name, (run_id, status, cluster)))
    ]


def clusters_and_runs(context: typer.Context) -> list[tuple[str, str]]:
    """Return the names of the clusters, then the ids of the runs."""
    return [*((name, "cluster") for name in clusters(context)), *runs(context)]


def _runs(context: typer.Context) -> list[tuple[Any, ...]]:
    """Return id, name, number of nodes, status and cluster of all runs, newest first."""
    path = _state(context) / "runs" / "runs.sqlite"
    query = "SELECT run_id, name, nodes, status, cluster FROM runs ORDER BY started DESC"
    with (
        suppress(sqlite3.Error),  # no run was started yet, or its file is damaged
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database,
    ):
        return database.execute(query).fetchall()
    return []


def _is_name(text: object) -> bool:
    """Return whether the text has the form of names in config/identifiers.py, which takes long."""
    return isinstance(text, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", text) is not None


def _given(context: typer.Context) -> Options:
    """Return the shared options of the line so far."""
    levels: list[Any] = [context]
    while levels[-1].parent is not None:
        levels.append(levels[-1].parent)
    given = Options()
    for level in reversed(levels):  # the last one on the line wins
        given.take(level.params)
    return given


def _state(context: typer.Context) -> Path:
    """Return the state folder of the target that the line means so far."""
    try:
        export_state()
        return ChosenTarget(_given(context).places).state
    except InputError:  # no lab can have that name, or the settings are wrong
        return Path("/nowhere")
