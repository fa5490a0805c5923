"""Rules about `roles` of a run file: which exist, how many nodes they have, what they run.

Node 0 alone has the first role of the type; for ps-worker the first role has as many nodes as it
sets. Nodes that no role takes have the role without a number, or the type's second role, `worker`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from config.cluster.cluster_file import FORMS
from config.cluster.cluster_rules import Data
from config.identifiers import CLUSTER_NAME
from config.mistakes import Mistake
from config.run.run_file import RUN_TYPES, Mpirun
from config.yaml.hints import names_hint

MOST_GROUPS = 5
"""The maximum number of groups of Ray's workers, as in TI-ONE."""

Roles = Mapping[str, Mapping[str, Any]]


def total_nodes(data: Data, run_type: str) -> Any:
    """Return `nodes` as written; if missing, the sum of the roles if all set theirs, else 1."""
    first, _ = RUN_TYPES[run_type].ROLES
    counts = {name: role.get("nodes") for name, role in _roles(data).items()}
    others = counts.keys() - {first}
    counts[first] = counts.get(first) or 1
    if "nodes" in data or not others or not all(type(count) is int for count in counts.values()):
        return data.get("nodes", 1)
    return sum(counts.values())


def role_mistakes(data: Data, run_type: str) -> Iterator[Mistake]:
    """Yield the mistakes in the roles of a run of this type."""
    roles = _roles(data)
    yield from _names(roles, run_type)
    yield from _idle_commands(roles, run_type)
    if run_type == "ps-worker":
        yield from _missing_commands(data, roles)
    total = total_nodes(data, run_type)
    if run_type == "torchrun" and "nnodes" in data:
        yield from _uncounted(roles, "'nnodes'")
    elif isinstance(total, dict):
        yield from _uncounted(roles, "a range in 'nodes'")
        least = total.get("min")
        if issubclass(RUN_TYPES[run_type], Mpirun) and type(least) is int:
            yield from _launcher_as_node(data, roles, least)
    elif type(total) is int and total >= 1:
        yield from _counts(roles, run_type, total)
        if issubclass(RUN_TYPES[run_type], Mpirun):
            yield from _launcher_as_node(data, roles, total)


def _roles(data: Data) -> Roles:
    """Return the roles that are mappings; the model reports the others."""
    written = data.get("roles")
    roles = written.items() if isinstance(written, dict) else ()
    return {name: role for name, role in roles if isinstance(role, dict)}


def _names(roles: Roles, run_type: str) -> Iterator[Mistake]:
    allowed = RUN_TYPES[run_type].ROLES
    if run_type != "ray":
        for name, role in roles.items():
            is_group = run_type == "task" and "nodes" in role and re.fullmatch(CLUSTER_NAME, name)
            if name not in allowed and not is_group:
                message = f"type {run_type} has no role '{name}'"
                yield Mistake("E219", message, names_hint(name, allowed), ("roles", name), True)
        return
    groups = [name for name in roles if name != allowed[0]]
    for name in groups:
        if not re.fullmatch(CLUSTER_NAME, name):
            message = f"'{name}' is no name of a group of workers"
            yield Mistake("E219", message, f"write {FORMS[CLUSTER_NAME]}", ("roles", name), True)
    uncounted = [name for name in groups if "nodes" not in roles[name]]
    for name in uncounted[1:]:
        message = f"neither 'roles.{uncounted[0]}' nor 'roles.{name}' says how many nodes it has"
        yield Mistake("E219", message, "add nodes to one of them", ("roles", name), True)
    if len(groups) > MOST_GROUPS:
        message = f"'roles' has {len(groups)} groups of workers, more than {MOST_GROUPS}"
        yield Mistake("E219", message, "put some of them together", ("roles",), True)


def _idle_commands(roles: Roles, run_type: str) -> Iterator[Mistake]:
    """Yield a mistake for each role that has commands and nothing to run them."""
    reasons = {
        "nccl-tests": "nccl-tests runs its own programs",
        "ray": "the run's commands run on the head, workers wait for Ray's tasks",
    }
    for name, role in roles.items():
        if "commands" in role and run_type in reasons and (run_type, name) != ("ray", "head"):
            message = f"'roles.{name}.commands' has no effect: {reasons[run_type]}"
            yield Mistake("E223", message, "remove it", ("roles", name, "commands"), True)


def _missing_commands(data: Data, roles: Roles) -> Iterator[Mistake]:
    without = [name for name in ("ps", "worker") if "commands" not in roles.get(name, {})]
    if without and "commands" not in data:
        which = " and ".join(f"roles.{name}.commands" for name in without)
        have = "have none" if without[1:] else "has none"
        message = f"'commands' is missing: {' and '.join(without)} {have}"
        yield Mistake("E102", message, f"add it, or {which}")


def _uncounted(roles: Roles, what: str) -> Iterator[Mistake]:
    for name, role in roles.items():
        if "nodes" in role:
            message = f"'roles.{name}.nodes' has no effect together with {what}"
            yield Mistake("E223", message, "remove it", ("roles", name, "nodes"), True)


def _counts(roles: Roles, run_type: str, total: int) -> Iterator[Mistake]:
    """Yield a mistake if the roles do not have exactly all nodes of the run.

    The last role may have the nodes that are left.
    """
    first, rest = RUN_TYPES[run_type].ROLES
    counts = {first: 1} | {name: role["nodes"] for name, role in roles.items() if "nodes" in role}
    if not all(type(count) is int and count >= 1 for count in counts.values()):
        return
    if run_type == "ps-worker" and total == 1:
        message = "a run of type ps-worker has a ps and a worker at least, but 'nodes' is 1"
        yield Mistake("E219", message, "write nodes: 2 or more", ("nodes",))
        return
    if run_type == "ps-worker":
        counts.setdefault(rest, max(1, total - counts[first]))
    elif counts[first] > 1:
        message = f"'roles.{first}.nodes' is {counts[first]}, but only node 0 is {first}"
        yield Mistake("E219", message, "remove it", ("roles", first, "nodes"))
        return
    needed = sum(counts.values())
    is_closed = rest in counts and not any(name not in counts for name in roles)
    if needed > total or (needed < total and is_closed):
        who = ", ".join(f"{name} {count}" for name, count in counts.items())
        message = f"the roles have {needed} nodes ({who}), but 'nodes' is {total}"
        yield Mistake(
            "E219", message, f"write nodes: {needed}, or change the roles", ("roles",), True
        )


def _launcher_as_node(data: Data, roles: Roles, total: int) -> Iterator[Mistake]:
    """Yield the mistakes against Kubeflow's rule on `runLauncherAsNode`, and a case without rule.

    In Kubeflow the rule holds if the job sets the number of nodes, and not if its template does
    (mpi.go of kubeflow/trainer@8c0f5059); here the file and its template are one.
    """
    if data.get("launcher_as_node", True) is False:
        if "commands" in roles.get("launcher", {}):
            message = "'roles.launcher.commands' has no effect: 'launcher_as_node' is false"
            yield Mistake("E223", message, "remove it", ("roles", "launcher", "commands"), True)
        if total == 1:
            message = "'launcher_as_node' is false and 'nodes' is 1: no node is left for ranks"
            hint = "write nodes: 2 or more, or launcher_as_node: true"
            yield Mistake("E220", message, hint, ("launcher_as_node",))
        return
    missing = [name for name in ("launcher", "worker") if name not in roles]
    if total >= 2 and len(missing) == 1 and roles:
        message = (
            f"'launcher_as_node' is true and 'nodes' is {total}, so 'roles' needs launcher and"
            f" worker: {missing[0]} is missing"
        )
        hint = f"add {missing[0]}: {{}} to it, or write launcher_as_node: false"
        yield Mistake("E220", message, hint, ("roles",), True)
