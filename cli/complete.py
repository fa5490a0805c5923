"""Completions of the shell for names of clusters, nodes and runs.

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
from config.errors import InputError
from config.settings import export_state
from operations.chosen_target import ChosenTarget


def clusters(context: typer.Context) -> list[str]:
    """Return the names of the clusters of the target that the line means so far."""
    names = (path.parent.name for path in _state(context).glob("clusters/*/cluster.json"))
    return sorted(name for name in names if _is_name(name))


def nodes(context: typer.Context) -> list[str]:
    """Return the names of the nodes of the line's cluster, and `bastion` where it has one."""
    path = _state(context) / "clusters" / str(context.params.get("cluster")) / "inventory.json"
    try:
        inventory = json.loads(path.read_bytes())
        names = [node["name"] for node in inventory["nodes"]]
        known = [name for name in names if _is_name(name)]
        return [*known, "bastion"] if inventory["bastion"] else known
    except (OSError, ValueError, LookupError, TypeError):
        return []


def runs(context: typer.Context) -> list[tuple[str, str]]:
    """Return the ids of the runs, newest first, each with its status and cluster."""
    path = _state(context) / "runs" / "runs.sqlite"
    query = "SELECT run_id, status, cluster FROM runs ORDER BY started DESC"
    with (
        suppress(sqlite3.Error),  # no run was started yet, or its file is damaged
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database,
    ):
        rows = database.execute(query).fetchall()
        return [
            (run_id, f"{status} on {cluster}")
            for run_id, status, cluster in rows
            if all(map(_is_name, (run_id, status, cluster)))
        ]
    return []


def clusters_and_runs(context: typer.Context) -> list[tuple[str, str]]:
    """Return the names of the clusters, then the ids of the runs."""
    return [*((name, "cluster") for name in clusters(context)), *runs(context)]


def _is_name(text: object) -> bool:
    """Return whether the text has the form of names in config/identifiers.py, which takes long."""
    return isinstance(text, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", text) is not None


def _state(context: typer.Context) -> Path:
    """Return the state folder of the target that the line means so far."""
    levels: list[Any] = [context]
    while levels[-1].parent is not None:
        levels.append(levels[-1].parent)
    given = Options()
    for level in reversed(levels):  # the last one on the line wins
        given.take(level.params)
    try:
        export_state()
        return ChosenTarget(given.places).state
    except InputError:  # no lab can have that name, or the settings are wrong
        return Path("/nowhere")
