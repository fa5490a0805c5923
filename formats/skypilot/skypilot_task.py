"""SkyPilot's task as the data of a run file; values keep their positions in SkyPilot's file.

What SkyPilot does around the scripts (sky/task.py, sky/backends/cloud_vm_ray_backend.py and
docs/source/running-jobs/environment-variables.rst of skypilot-org/skypilot, read 2026-11-28):
`setup` and `run` are separate scripts, the status of each is that of its last command, and
both have the variables of the task.

`resources` becomes `requires` of a run file, its image and its ports. A cluster of gpuctl exists
when a run begins, so what SkyPilot would look for on all clouds is compared with it. Of several
alternatives any may hold.
"""

import math
import re
import shlex
from pathlib import Path as FilePath
from typing import Any

from config.catalogue.instance_types import catalogue
from config.cluster.cluster_file import REGION, ZONE
from config.command_rules import entry_mistakes
from config.command_text import command_text
from config.identifiers import RUN_NAME
from config.mistakes import Path
from config.run.container_fields import OTHERS_IMAGES, TAKE_CUDA, WHY_NO_OTHERS
from config.run.env import NAME_FORM
from config.run.requirements import plain_gpu
from formats.converted import Placed
from formats.skypilot.skypilot_file import SkyPilotFile
from formats.skypilot.skypilot_keys import RESOURCE_KEYS, TASK_KEYS

_MEMORY = re.compile(r"(.+)-([0-9]+GB)")
_AT: Path = ("resources",)
_LISTS = ("gpu", "instance_types", "regions", "zones")


def resources(reading: SkyPilotFile) -> dict[str, Any]:
    """Return `requires`, `image` and `ports` of the run file."""
    alternatives = [
        (*_AT, key, index)
        for key in ("any_of", "ordered")
        for index in range(len(reading.entries((*_AT, key))))
    ]
    for at in (_AT, *alternatives):
        reading.check_keys(at, RESOURCE_KEYS)
    needs = _needs(reading, _AT)
    clouds = [
        cloud
        for at in alternatives or [_AT]
        if (cloud := _cloud(reading, at) or _cloud(reading, _AT))
    ]
    if clouds and "aws" not in clouds:
        place = next(
            at
            for at in ((*_AT, key) for key in ("infra", "cloud", "any_of", "ordered"))
            if reading.get(at) is not None
        )
        reading.refuse(
            place,
            f"asks for {', '.join(dict.fromkeys(clouds))}",
            "gpuctl rents on AWS alone: remove it, or add aws",
        )
    ours = [at for at in alternatives if _cloud(reading, at) in ("", "aws")]
    needs |= _either([_needs(reading, at) for at in ours])
    run: dict[str, Any] = {"requires": needs} if needs else {}
    return run | _image(reading) | _ports(reading)


def _either(alternatives: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what holds for any of the alternatives: all their names; ranges that are the same."""
    needs: dict[str, Any] = {}
    for key in dict.fromkeys(key for each in alternatives for key in each):
        values = [each[key] for each in alternatives if key in each]
        if len(values) < len(alternatives):
            continue
        if key in _LISTS:
            names = dict.fromkeys(name for value in values for name in value.value)
            needs[key] = Placed(list(names), values[0].at)
        elif all(value.value == values[0].value for value in values):
            needs[key] = values[0]
    return needs


def _needs(reading: SkyPilotFile, at: Path) -> dict[str, Any]:
    needs = _accelerators(reading, (*at, "accelerators")) | _place(reading, at)
    for key, field, unit in (
        ("cpus", "cpus", ""),
        ("memory", "memory", "GB"),
        ("disk_size", "disk", "GB"),
    ):
        if least := reading.least((*at, key), unit):
            needs[field] = Placed(least, (*at, key))
    if name := reading.text((*at, "instance_type")):
        needs["instance_types"] = Placed([name], (*at, "instance_type"))
    if reading.get((*at, "use_spot")) is not None:
        needs["spot"] = Placed(reading.flag((*at, "use_spot")), (*at, "use_spot"))
    return needs


def _cloud(reading: SkyPilotFile, at: Path) -> str:
    """Return the cloud in lower case; empty for any."""
    name = reading.text((*at, "infra")).partition("/")[0] or reading.text((*at, "cloud"))
    return "" if name == "*" else name.lower()


def _place(reading: SkyPilotFile, at: Path) -> dict[str, Any]:
    """Return the region and the zone."""
    if _cloud(reading, at) not in ("", "aws"):
        return {}
    parts = [*reading.text((*at, "infra")).split("/"), "", ""][1:3]
    needs: dict[str, Any] = {}
    for key, field, pattern, part in (
        ("region", "regions", REGION, parts[0]),
        ("zone", "zones", ZONE, parts[1]),
    ):
        place = (*at, "infra") if part else (*at, key)
        name = part or reading.text(place)
        if name and name != "*":
            if re.fullmatch(pattern, name):
                needs[field] = Placed([name], place)
            else:
                reading.refuse(
                    place,
                    f"asks for {key} {name}, which AWS does not have",
                    "write one of AWS's, such as us-east-1",
                )
    return needs


def _accelerators(reading: SkyPilotFile, at: Path) -> dict[str, Any]:
    """Return the GPUs of `H100:8`, `{H100: 8}`, `[A100:8, H100:8]` and `{A100:8, H100:8}`."""
    value = reading.get(at)
    counted: list[tuple[str, float]] = []
    if isinstance(value, dict):
        for name, count in value.items():
            counted += [(name, float(count))] if isinstance(count, (int, float)) else [_pair(name)]
    elif isinstance(value, tuple):
        counted = [_pair(text) for text in reading.texts(at)]
    elif text := reading.text(at):
        counted = [_pair(text)]
    if not counted:
        return {}
    models = {plain_gpu(entry.gpu.model): entry.gpu.model for entry in catalogue().values()}
    del models["NEURON"]
    known = [(name, count) for name, count in counted if plain_gpu(_model(name)) in models]
    if not known:
        names = ", ".join(name for name, _ in counted)
        reading.refuse(at, f"asks for {names}", f"gpuctl rents {', '.join(models.values())}")
        return {}
    gpus = sorted(math.ceil(count) for _, count in known)
    needs = {
        "gpu": Placed(
            list(dict.fromkeys(models[plain_gpu(_model(name))] for name, _ in known)), at
        ),
        "gpus": Placed(f"{gpus[0]}" if gpus[0] == gpus[-1] else f"{gpus[0]}..{gpus[-1]}", at),
    }
    if len(known) == 1 and (memory := _memory(known[0][0])):
        needs["gpu_memory"] = Placed(memory, at)
    return needs


def _pair(text: str) -> tuple[str, float]:
    name, _, count = text.replace(" ", "").partition(":")
    return name, float(count) if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", count) else 1.0


def _model(name: str) -> str:
    match = _MEMORY.fullmatch(name)
    return match[1] if match else name


def _memory(name: str) -> str:
    """Return the memory of a GPU that SkyPilot names by it: `A100-80GB`; its A100 has 40 GB."""
    match = _MEMORY.fullmatch(name)
    return match[2] if match else "40GB" if name.upper() == "A100" else ""


def _image(reading: SkyPilotFile) -> dict[str, Any]:
    at: Path = (*_AT, "image_id")
    if reading.get(at) is None:
        return {}
    text = "" if isinstance(reading.get(at), dict) else reading.text(at)
    reference = text.removeprefix("docker:")
    if reference == text:
        reading.leave_out(at, "`image` of the cluster file chooses what its machines boot")
        return {}
    if OTHERS_IMAGES.search(reference):
        reading.refuse(at, f"is {reference}, which is {WHY_NO_OTHERS}", TAKE_CUDA)
    return {"image": Placed(reference, at)}


def _ports(reading: SkyPilotFile) -> dict[str, Any]:
    at: Path = (*_AT, "ports")
    value = reading.get(at)
    places: list[Path] = (
        [(*at, index) for index in range(len(value))] if isinstance(value, tuple) else [at]
    )
    ports = []
    for place in places if value is not None else ():
        text = reading.text(place)
        if "-" in text:
            reading.leave_out(place, "ports are forwarded one by one: write those that you open")
        else:
            ports.append(Placed(f"*:{text}", place))
    return {"ports": Placed(ports, at)} if ports else {}


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
                f" in `setup`: {command_text('aws s3 sync BUCKET {}', place)}"
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
    for key, text in texts:
        reading.mistakes += entry_mistakes(text, (key,))
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
