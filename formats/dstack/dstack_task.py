"""dstack's task as the data of a run file; values keep their positions in dstack's file.

The events and fields of `retry` are in ProfileRetry (core/models/profiles.py of dstackai/dstack).
For them a node that does not answer is an `error`, on spot capacity an `interruption`
(server/background/pipeline_tasks/runs/active.py). dstack counts no attempts: `duration` is the time
since the last failure (docs/docs/concepts/tasks.md at 0219c0bb; all read 2026-11-23).

The files and the repository of a task travel with the run (docs/do/code.md). A relative remote path
is in the folder where the job starts. dstack allows others too
(src/dstack/_internal/core/models/files.py of dstackai/dstack, 2026-11-23): such files travel below
SENT, and the task's script copies them from there before its commands.
"""

import re
import shlex
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any

from config.identifiers import RUN_NAME
from config.mistakes import Path, path_text
from config.run.retry import CAUSES, MOST_ATTEMPTS
from config.run.run_file import FORMS
from config.yaml.hints import describe_value
from formats.converted import Placed
from formats.dstack.commands import Surroundings, commands, surroundings
from formats.dstack.dstack_file import DstackFile
from formats.dstack.dstack_keys import OURS_ALONE, TABLE
from formats.dstack.task_env import environment
from formats.dstack.task_image import image, volume_links
from formats.dstack.task_resources import RESOURCES, requires

_DSTACKS = ("on_events", "duration")
_ERROR = tuple(cause for cause in CAUSES if cause != "preemption")
_EVENTS = {"no-capacity": (), "interruption": ("preemption", "node-lost"), "error": _ERROR}

RETRY_FORMS: tuple[dict[str, Any], ...] = (
    {"type": "boolean"},
    {
        "type": "object",
        "properties": {
            "on_events": {"type": "array", "items": {"enum": list(_EVENTS)}},
            "duration": {"type": ["string", "integer"]},
        },
        "additionalProperties": False,
    },
)
"""The JSON Schema of dstack's forms."""


def is_dstacks(retry: Any) -> bool:
    """Return whether the value of `retry` has a form that gpuctl's run files do not have."""
    return isinstance(retry, bool) or (
        isinstance(retry, dict) and not retry.keys().isdisjoint(_DSTACKS)
    )


def retry(reading: DstackFile) -> dict[str, Any]:
    """Return the run file's `retry`; nothing if the task is not retried."""
    at: Path = ("retry",)
    value = reading.get(at)
    if isinstance(value, dict) and not is_dstacks(value):
        return {"retry": Placed(value, at)}
    if not isinstance(value, dict) and not reading.flag(at):
        return {}
    policy: dict[str, Any] = {"attempts": MOST_ATTEMPTS}
    if isinstance(value, dict):
        reading.unknown_keys(at, _DSTACKS)
        events = reading.texts((*at, "on_events"))
        allowed = [
            reading.one_of((*at, "on_events", index), tuple(_EVENTS))
            for index in range(len(reading.entries((*at, "on_events"))))
        ]
        on = {cause for event in allowed if event for cause in _EVENTS[event]}
        if events and not on:
            message = "'retry.on_events' is left out: a run has its nodes when it starts"
            hint = "remove it if the job does not need it"
            reading.complain("W206", message, hint, (*at, "on_events"))
            return {}
        policy |= {"on": [cause for cause in CAUSES if cause in on]} if on else {}
        seconds = reading.seconds((*at, "duration"))
        policy |= {"node_wait": reading.duration_text(seconds)} if seconds else {}
    return {"retry": Placed(policy, at)}


SENT = ".dstack"
_REPOSITORY = re.compile(r"(.*?)(?::((?!//)[./~].*))?")
_URL = re.compile(r"https://|ssh://|[^/]+@")


def files(reading: DstackFile) -> tuple[dict[str, Placed], list[str]]:
    """Return the files in gpuctl's form, and lines of bash that copy some to their places."""
    mappings, copies = [], []
    for index in range(len(reading.entries(("files",)))):
        at: Path = ("files", index)
        local, remote = _paths(reading, at)
        if remote.startswith(("/", "~")):
            sent = f"{SENT}/{index}"
            copies.append(_copy(sent, remote))
            remote = sent
        mappings.append(Placed(f"{local}:{remote}" if remote else local, at))
    return ({"files": Placed(mappings, ("files",))} if mappings else {}), copies


def repository(reading: DstackFile) -> tuple[dict[str, Any], list[str]]:
    """Return the first of `repos` in gpuctl's form, and lines of bash that copy it to its place.

    A folder of the user's becomes the `workdir`, with what is not committed; an address `repo`.
    """
    at: Path = ("repos", 0)
    for index in range(1, len(reading.entries(("repos",)))):
        message, hint = f"'repos[{index}]' is left out: a run has one", "name its files in 'files'"
        reading.complain("W206", message, hint, ("repos", index))
    if not reading.entries(("repos",)):
        return {}, []
    if isinstance(reading.get(at), dict):
        reading.unknown_keys(at, ("local_path", "url", "branch", "hash", "path", "if_exists"))
        source = reading.text((*at, "url")) or reading.text((*at, "local_path"))
        place = reading.text((*at, "path"))
    else:
        match = _REPOSITORY.fullmatch(reading.text(at))
        source, place = (match[1], match[2] or "") if match else ("", "")
    copies = [_copy("", place)] if place.startswith(("/", "~")) else []
    if place not in ("", ".", "./") and not copies:
        message = f"'repos[0]' goes to {place}, below the folder where the job starts"
        reading.complain("W206", f"{message}: it is that folder", "write no path", at)
    if not _URL.match(source):
        return {"workdir": Placed(source, at)}, copies
    pinned = (("branch", "branch"), ("hash", "commit"))
    texts = {key: Placed(reading.text((*at, name)), at) for name, key in pinned}
    given = {key: text for key, text in texts.items() if text.value}
    return {"repo": Placed({"url": Placed(source, at), **given}, at)}, copies


def _paths(reading: DstackFile, at: Path) -> tuple[str, str]:
    """Return the local path and the remote one, which may be empty: then they are the same."""
    if isinstance(reading.get(at), dict):
        reading.unknown_keys(at, ("local_path", "path"))
        local, remote = (reading.text((*at, key)) for key in ("local_path", "path"))
    else:
        local, _, remote = reading.text(at).partition(":")
    return local, remote or (local if local.startswith(("/", "~")) else "")


def _copy(sent: str, place: str) -> str:
    is_home = place == "~" or place.startswith("~/")
    target = '"$HOME"' + shlex.quote(place[1:]) if is_home else shlex.quote(place)
    return (
        f'mkdir -p -- "$(dirname -- {target})" &&\n'
        f'  cp -a -T -- "$GPUCTL_WORKDIR"/{sent} {target} || exit 1'
    )


_ORDERS = ("any", "master-first", "workers-first")
_CRITERIA = ("all-done", "master-done")
_GROUP = ("name", "nodes", "resources", "commands", "ports")
_FIRST_PORTS: Path = ("groups", 0, "ports")
_NOTHING: tuple[Any, ...] = (None, False, (), {})
_GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def task(reading: DstackFile) -> dict[str, Any]:
    """Return the run file of dstack's task."""
    _report_keys(reading)
    name = _name(reading)
    run: dict[str, Any] = {"type": "task"}
    extends = reading.get(("extends",)) is not None
    if not extends or name.at:
        run["name"] = name
    env, exports = environment(reading)
    links = volume_links(reading)
    (sent, copies), (code, unpacked) = files(reading), repository(reading)
    around = surroundings(reading, [*exports, *links, *unpacked, *copies])
    run |= image(reading) | sent | code
    run |= {"env": env} if env else {}
    if reading.get(("groups",)) is None:
        if reading.get(("nodes",)) is not None:
            run["nodes"] = Placed(reading.whole(("nodes",), default=1), ("nodes",))
        lines = commands(reading, ("commands",), around, (), name.value)
        run |= {"commands": Placed(lines, ("commands",))} if lines else {}
        resources: tuple[Path, ...] = (("resources",),)
    else:
        run |= _groups(reading, around, name.value)
        count = len(reading.entries(("groups",)))
        resources = tuple(("groups", index, "resources") for index in range(count))
    needed = requires(reading, resources)
    run |= {"requires": needed} if needed else {}
    run |= _conditions(reading) | retry(reading)
    run |= _ports(reading, ("ports",) if reading.get(("groups",)) is None else _FIRST_PORTS)
    if not extends:
        _missing_commands(reading, run)
    return run | {key: Placed(reading.get((key,)), (key,)) for key in _ours(reading)}


def _ours(reading: DstackFile) -> list[str]:
    """Return the keys that gpuctl alone has and the file has too."""
    written = reading.mapping(())
    return [key for key in written if key in OURS_ALONE and written[key] is not None]


def _report_keys(reading: DstackFile) -> None:
    """Report the keys that have no effect, and those that nobody knows."""
    for key, value in reading.mapping(()).items():
        row = TABLE.get(key)
        if row is None and key not in OURS_ALONE:
            reading.report_unknown((key,), _nearest(key))
        elif row is not None and row.answer == "leaves out" and value not in _NOTHING:
            reading.leave_out((key,), row.text)
    if reading.flag(("dstack",)):
        reading.refuse(("dstack",), "is true", "gpuctl has no server that a run could ask")


def _nearest(key: str) -> str:
    """Return the hint for an unknown key: the nearest one, or the place of a key of `resources`."""
    if key in RESOURCES:
        return f"write '{key}' below 'resources'"
    near = get_close_matches(key, TABLE, n=1)
    return f"did you mean '{near[0]}'?" if near else "remove it: it has no effect"


def _name(reading: DstackFile) -> Placed:
    """Return the run's name; without `name` the file's: `train.dstack.yml` is train."""
    name = reading.text(("name",))
    if not name:
        file = FilePath(reading.document.file)
        stem = re.sub(r"(\.?dstack)?\.ya?ml$", "", file.name) or file.absolute().parent.name
        name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).lstrip("-0123456789")[:41].rstrip("-")
        return Placed(name or "task", ())
    if not re.fullmatch(RUN_NAME, name):
        message = f"'name' is {describe_value(name)}"
        reading.complain("E203", message, f"write {FORMS[RUN_NAME]}", ("name",))
    return Placed(name, ("name",))


def _conditions(reading: DstackFile) -> dict[str, Any]:
    """Return the startup order, the stop criteria and the time limit."""
    conditions: dict[str, Any] = {}
    for key, allowed in (("startup_order", _ORDERS), ("stop_criteria", _CRITERIA)):
        value = reading.one_of((key,), allowed)
        conditions |= {key: Placed(value, (key,))} if value else {}
    seconds = reading.seconds(("max_duration",))
    if seconds:
        conditions["max_duration"] = Placed(reading.duration_text(seconds), ("max_duration",))
    return conditions


def _ports(reading: DstackFile, at: Path) -> dict[str, Any]:
    """Return the ports in gpuctl's form."""
    ports = []
    for index in range(len(reading.entries(at))):
        entry: Path = (*at, index)
        if isinstance(reading.get(entry), dict):
            reading.unknown_keys(entry, ("local_port", "container_port"))
            local, container = (
                reading.text((*entry, key)) for key in ("local_port", "container_port")
            )
            ports.append(Placed(f"{local or '*'}:{container}", entry))
        else:
            ports.append(Placed(reading.text(entry), entry))
    return {"ports": Placed(ports, at)} if ports else {}


def _missing_commands(reading: DstackFile, run: dict[str, Any]) -> None:
    if "commands" not in run and reading.get(("groups",)) is None and not reading.is_refused:
        message = "'commands' is missing, and there is no 'image' whose command could run"
        reading.complain("E102", message, "add one of them", ())


def _groups(reading: DstackFile, around: Surroundings, name: str) -> dict[str, Any]:
    """Return nodes and roles of the groups: node 0 is the master, the rest of its group follows."""
    entries = reading.entries(("groups",))
    for key in ("nodes", "commands", "ports", "entrypoint"):
        if reading.get((key,)) is not None:
            message = f"'{key}' and 'groups' exclude each other"
            hint = "remove it, or write it into the groups"
            reading.complain("E223", message, hint, (key,), on_key=True)
    if not entries:
        reading.complain("E202", "'groups' is empty", "write at least one group", ("groups",))
    sizes = tuple(reading.whole(("groups", i, "nodes"), default=1) for i in range(len(entries)))
    roles: dict[str, Any] = {}
    for index, size in enumerate(sizes):
        at: Path = ("groups", index)
        reading.unknown_keys(at, _GROUP)
        if index and reading.get((*at, "ports")) not in _NOTHING:
            message = f"'{path_text((*at, 'ports'))}' is left out: only node 0's are forwarded"
            hint = "`gpuctl ssh CLUSTER NODE -- -N -L PORT:localhost:PORT` forwards others"
            reading.complain("W206", message, hint, (*at, "ports"), on_key=True)
        texts = commands(reading, (*at, "commands"), around, sizes, name)
        if not texts:
            message = f"'{path_text((*at, 'commands'))}' is missing"
            reading.complain("E102", message, "add it, or an 'image' for all groups", at)
        own = {"commands": Placed(texts, (*at, "commands"))}
        role = _role(reading, at, str(index), roles)
        if index == 0:
            roles["master"] = own
        if rest := size - (index == 0):
            roles[role] = {"nodes": Placed(rest, (*at, "nodes")), **own}
    first = roles.get("master", {}).get("commands")
    return {
        "nodes": Placed(sum(sizes), ("groups",)),
        "roles": roles,
        **({"commands": first} if first else {}),
    }


def _role(reading: DstackFile, at: Path, default: str, roles: dict[str, Any]) -> str:
    """Return the name of a group's role: its own, or one with `group-` before it."""
    name = reading.text((*at, "name")) or default
    if not _GROUP_NAME.fullmatch(name):
        message = f"'{path_text((*at, 'name'))}' is {describe_value(name)}"
        hint = "write lower-case letters, digits and hyphens, at most 40"
        reading.complain("E203", message, hint, (*at, "name"))
    role = f"group-{name}" if name[:1].isdigit() or name == "master" else name
    if role in roles:
        message = f"'{path_text((*at, 'name'))}' is {describe_value(name)} again"
        reading.complain("E203", message, "give each group another name", (*at, "name"))
    return role
