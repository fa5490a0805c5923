"""SkyPilot's task as the data of a run file; values keep their positions in SkyPilot's file.

What SkyPilot does around the scripts (sky/task.py, sky/backends/cloud_vm_ray_backend.py and
docs/source/running-jobs/environment-variables.rst of skypilot-org/skypilot, read 2026-11-28):
`setup` and `run` are separate scripts, the status of each is that of its last command, and
both have the variables of the task.
"""

import re
import shlex
from pathlib import Path as FilePath
from typing import Any

from config.identifiers import RUN_NAME
from config.mistakes import Path
from config.run.env import NAME_FORM
from formats.converted import Placed
from formats.skypilot.skypilot_file import SkyPilotFile
from formats.skypilot.skypilot_keys import TASK_KEYS
from formats.skypilot.task_resources import resources

_SENT = ".skypilot"
_BUCKET = re.compile(r"(s3|gs|r2|cos|oci|nebius|cw|hf|https?)://", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_VARIABLES = """\
export SKYPILOT_NODE_RANK="$GPUCTL_NODE_RANK" SKYPILOT_NODE_IPS="$GPUCTL_NODES_IPS"
export SKYPILOT_NUM_NODES="$GPUCTL_NODES_NUM" SKYPILOT_NUM_GPUS_PER_NODE="$GPUCTL_GPUS_PER_NODE"
export SKYPILOT_SETUP_NODE_RANK="$GPUCTL_NODE_RANK" SKYPILOT_SETUP_NODE_IPS="$GPUCTL_NODES_IPS"
export SKYPILOT_SETUP_NUM_GPUS_PER_NODE="$GPUCTL_GPUS_PER_NODE"
export SKYPILOT_TASK_ID="sky-$GPUCTL_RUN_ID"
"""


def task(reading: SkyPilotFile) -> dict[str, Any]:
    """Return the run file of SkyPilot's task."""
    reading.check_keys((), TASK_KEYS)
    run: dict[str, Any] = {"type": "task", "name": _name(reading)}
    if reading.get(("num_nodes",)) is not None:
        run["nodes"] = Placed(reading.whole(("num_nodes",), default=1), ("num_nodes",))
    env = _env(reading)
    sent, copies = _file_mounts(reading)
    run |= {"env": env} if env else {}
    run |= sent | _workdir(reading)
    commands = _commands(reading, copies)
    run |= {"commands": commands} if commands else {}
    return run | resources(reading)


def _name(reading: SkyPilotFile) -> Placed:
    """Return the run's name; without `name` the file's: `train.sky.yaml` is train."""
    name = reading.text(("name",))
    stem = name or FilePath(reading.document.file).name.partition(".")[0]
    plain = re.sub(r"[^a-z0-9]+", "-", stem.lower()).lstrip("-0123456789")[:41].rstrip("-")
    at: Path = ("name",) if name else ()
    return Placed(plain if re.fullmatch(RUN_NAME, plain) else "task", at)


def _env(reading: SkyPilotFile) -> dict[str, Any]:
    """Return the variables: texts, and the names of secrets."""
    env: dict[str, Any] = {}
    for key in ("envs", "secrets"):
        for name in reading.mapping((key,)):
            at: Path = (key, name)
            if not re.fullmatch(NAME_FORM, name):
                message = f"'{name}' names no variable"
                reading.complain("E207", message, "write letters, digits and _", at, on_key=True)
            elif reading.get(at) is None or (key == "secrets" and reading.get(at) == ""):
                env[name] = Placed({"secret": name}, at)
            elif key == "secrets":
                hint = (
                    f"leave the value out (`{name}:`): it is taken from your environment or secrets"
                )
                reading.refuse(at, "is a secret that stands in the file", hint, on_key=True)
            else:
                text = reading.variable(at)
                env[name] = Placed(text.replace("${", "$${"), at)
    return env


def _workdir(reading: SkyPilotFile) -> dict[str, Any]:
    """Return the folder or the repository where the job's working folder comes from."""
    at: Path = ("workdir",)
    if isinstance(reading.get(at), dict):
        repo = {"url": Placed(reading.text((*at, "url")), (*at, "url"))}
        if ref := reading.text((*at, "ref")):
            key = "commit" if _COMMIT.fullmatch(ref) else "branch"
            repo[key] = Placed(ref, (*at, "ref"))
        return {"repo": Placed(repo, at)}
    text = reading.text(at)
    return {"workdir": Placed(_local(text), at)} if text else {}


def _local(text: str) -> str:
    """Return the whole path: SkyPilot's are relative to the folder in which it is called."""
    return str(FilePath(text).expanduser().absolute())


def _file_mounts(reading: SkyPilotFile) -> tuple[dict[str, Any], list[str]]:
    """Return the files in gpuctl's form, and lines of bash that copy some to their places."""
    mappings, copies = [], []
    for index, written in enumerate(reading.mapping(("file_mounts",))):
        at: Path = ("file_mounts", written)
        place = _filled_in(reading, written)
        if isinstance(reading.get(at), dict) or _BUCKET.match(source := reading.text(at)):
            hint = (
                "write `storage.shared` into the cluster file, which every node mounts, or copy"
                f" in `setup`: `aws s3 sync BUCKET {shlex.quote(place)}`"
            )
            reading.refuse(at, "is a bucket or a volume", hint, on_key=True)
            continue
        remote = place
        if place.startswith(("/", "~/")):
            remote = f"{_SENT}/{index}"
            copies.append(_copy(remote, place))
        mappings.append(Placed(f"{_local(_filled_in(reading, source))}:{remote}", at))
    return ({"files": Placed(mappings, ("file_mounts",))} if mappings else {}), copies


def _filled_in(reading: SkyPilotFile, text: str) -> str:
    """Return the text with the values of `envs`; names that `envs` lacks stay as they are."""
    envs = reading.mapping(("envs",))
    return _REFERENCE.sub(
        lambda match: (
            reading.variable(("envs", name)) if (name := match[1] or match[2]) in envs else match[0]
        ),
        text,
    )


def _copy(sent: str, place: str) -> str:
    target = '"$HOME"/' + shlex.quote(place[2:]) if place.startswith("~/") else shlex.quote(place)
    source = f'"$GPUCTL_WORKDIR"/{sent}'
    return f'mkdir -p -- "$(dirname -- {target})" &&\n  cp -a -T -- {source} {target} || exit 1\n'


def _commands(reading: SkyPilotFile, copies: list[str]) -> Placed | None:
    """Return `setup` in a separate shell, and `run`."""
    texts = [(key, reading.text((key,))) for key in ("setup", "run")]
    scripts = [
        (key, f"(\n{text.rstrip()}\n)" if key == "setup" else text)
        for key, text in texts
        if text.strip()
    ]
    if not scripts:
        reading.complain("E102", "'run' is missing", "add the commands of the job", ())
        return None
    before = _VARIABLES + "".join(copies)
    commands = [Placed(text, (key,)) for key, text in scripts]
    commands[0] = Placed(before + commands[0].value, commands[0].at)
    return Placed(commands, (scripts[0][0],))
