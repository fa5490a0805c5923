"""A batch script as the data of a run file: the script on node 0, and `srun` for it.

What the nodes do with it: engine/agent/slurm. Rules of sbatch that are carried out here, from
sbatch(1) and src/sbatch/opt.c of SchedMD/slurm@284c3b95, read 2026-11-28.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any

from config.bash_syntax import syntax_fault
from config.catalogue.instance_types import catalogue
from config.command_text import command_text
from config.duration import format_duration
from config.identifiers import RUN_NAME
from config.mistakes import Mistake
from config.run.container_fields import OTHERS_IMAGES, TAKE_CUDA, WHY_NO_OTHERS
from config.run.requirements import plain_gpu
from formats.converted import Placed
from formats.sbatch.batch_file import SCRIPT, BatchFile, accounting_names, environment
from formats.sbatch.options import ENVIRONMENT

ARRAY_TASK = "SLURM_ARRAY_TASK_ID"
SUBMIT_DIR = "SLURM_SUBMIT_DIR"
_SHELL = re.compile(r"#!\s*\S*/(?:env\s+)?(?:ba|da)?sh\b")
_END = "GPUCTL_END_OF_SCRIPT"
_GPUS = 8
"""The GPUs of a node where the header says their total alone: the largest types have 8."""
_LONGEST_S = 999_999 * 60
_SIZE = re.compile(r"([0-9]{1,7})([KMGT]?)B?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
_COUNT = re.compile(r"[0-9]{1,5}")
_NODES = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_SIGNAL = re.compile(r"(?:([RB]):)?(?:SIG)?([A-Z0-9]+)(?:@([0-9]{1,5}))?", re.IGNORECASE)


def job(reading: BatchFile) -> dict[str, Any]:
    """Return the run file of the batch script."""
    _check_script(reading)
    _check_options(reading)
    nodes = _nodes(reading)
    travelling = environment(reading)
    variables = travelling | _slurms(reading) | _array(reading)
    run: dict[str, Any] = {
        "type": "task",
        "name": _name(reading),
        "nodes": nodes,
        "startup_order": "workers-first",
        "stop_criteria": "master-done",
        "workdir": _workdir(reading),
        "env": variables,
    }
    run |= _time(reading) | _requires(reading, nodes) | _outputs(reading) | _container(reading)
    commands = [Placed(_commands(reading, travelling), (SCRIPT,))]
    return run | {"commands": commands, "roles": {"worker": {"commands": ["exec sleep infinity"]}}}


def _check_script(reading: BatchFile) -> None:
    """Report what makes sbatch refuse the script, and lines that it does not read."""
    script = reading.script
    if not script.startswith("#!"):
        hint = "begin it with #!/bin/bash: sbatch refuses the script"
        reading.complain("E203", "the script does not begin with '#!'", hint, (SCRIPT,))
    elif "\r\n" in script:
        message = "the script has line ends of DOS"
        hint = "convert it: `sed -i 's/\\r$//' FILE`; sbatch refuses the script"
        reading.complain("E203", message, hint, (SCRIPT,))
    elif _SHELL.match(script) and (fault := syntax_fault(script)):
        hint = "correct it: bash does not run what follows as it is written"
        mistake = Mistake("E248", f"the script {fault.what}", hint, (SCRIPT,), row=fault.row)
        reading.mistakes.append(mistake)


def _check_options(reading: BatchFile) -> None:
    """Report the options that are refused or left out, and in one line those of accounting."""
    accounting = []
    for given in reading.last_options():
        option = given.option
        if option.name == "array" and ARRAY_TASK in reading.given_values():
            continue
        if option.answer == "refuses":
            reading.refuse(option.name, "cannot be carried out", option.text)
        elif option.answer == "leaves out":
            reading.leave_out(option.name, option.text)
        elif option.answer == "accounting":
            accounting.append(option)
    if accounting:
        message = f"{accounting_names(accounting)}: left out, a run has no accounting"
        hint = "nothing to do: the job runs without"
        reading.complain("W206", message, hint, reading.at(accounting[0].name), on_key=True)


def _nodes(reading: BatchFile) -> Any:
    """Return the number of nodes, or a range; what follows from tasks and GPUs without `--nodes`.

    Slurm takes as many nodes as the tasks need; what a node can take is known here only if the
    header says it.
    """
    at = reading.at("nodes")
    if reading.has("nodes"):
        match = _NODES.fullmatch(reading.option("nodes"))
        if match is None or int(match[1]) < 1:
            reading.wrong("nodes", "write a number, or a range: 2, 2-4")
            return Placed(1, at)
        least, most = int(match[1]), int(match[2] or match[1])
        if least == most:
            return Placed(least, at)
        return Placed({"min": least, "max": most}, at)
    tasks, per_node = reading.number("ntasks"), _tasks_per_node(reading)
    if tasks and per_node:
        return Placed(-(-tasks // per_node), reading.at("ntasks"))
    gpus, on_node = _gpu_count(reading, "gpus"), _gpus_per_node(reading)
    for_tasks = tasks * _gpu_count(reading, "gpus-per-task")
    total = gpus or for_tasks
    on_node = on_node or (_GPUS if total > _GPUS else 0)
    if total and on_node:
        return Placed(-(-total // on_node), reading.at("gpus" if gpus else "ntasks"))
    return 1


def _tasks_per_node(reading: BatchFile) -> int:
    name = "ntasks-per-node" if reading.has("ntasks-per-node") else "tasks-per-node"
    return reading.number(name)


def _gpu_count(reading: BatchFile, name: str) -> int:
    """Return the number in `4` and `h100:4`; 0 without the option."""
    text = reading.option(name)
    if not text:
        return 0
    count = text.rpartition(":")[2]
    if not _COUNT.fullmatch(count):
        if re.fullmatch(r"[A-Za-z][\w.-]*", text):
            return 1
        reading.wrong(name, "write a number, or a model and a number: 8, h100:8")
        return 0
    return int(count)


def _gres(reading: BatchFile) -> tuple[str, int]:
    """Return model and number of the GPUs of `--gres`; 0 if it names none.

    Forms: `gpu`, `gpu:2`, `gpu:a100`, `gpu:a100:2`, each with a socket in parentheses behind it.
    """
    for entry in reading.option("gres").split(","):
        words = re.sub(r"\(.*\)", "", entry).removeprefix("gres/").replace("=", ":").split(":")
        if words[0].lower() == "gpu":
            count = words[-1] if words[1:] and _COUNT.fullmatch(words[-1]) else "1"
            model = words[1] if words[1:] and not _COUNT.fullmatch(words[1]) else ""
            return model, int(count)
        if entry and entry.lower() != "none":
            reading.leave_out("gres", f"a run has the whole of its nodes, {words[0]} too")
    return "", 0


def _gpus_per_node(reading: BatchFile) -> int:
    return _gpu_count(reading, "gpus-per-node") or _gres(reading)[1]


def _name(reading: BatchFile) -> Placed:
    """Return the run's name; without `--job-name` the file's."""
    text = reading.option("job-name") or FilePath(reading.document.file).stem
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")[:41].rstrip("-")
    at = reading.at("job-name") if reading.has("job-name") else ()
    return Placed(plain if re.fullmatch(RUN_NAME, plain) else "job", at)


def _workdir(reading: BatchFile) -> Any:
    """Return the folder that travels: of `--chdir`, `--set SLURM_SUBMIT_DIR`, or the script's."""
    submit = reading.given_values().get(SUBMIT_DIR)
    if reading.has("chdir"):
        base = FilePath(submit).expanduser().absolute() if submit else FilePath.cwd()
        path = base / reading.option("chdir")
        if path.is_dir():
            return Placed(str(path), reading.at("chdir"))
        reading.leave_out("chdir", f"{path} is no folder of this machine")
    if submit:
        return str(FilePath(submit).expanduser().absolute())
    if not reading.has("chdir") and FilePath.cwd() in reading.folder.parents:
        message = "the job starts in the script's folder; sbatch would start it in yours"
        hint = f"{command_text('--set {}=.', SUBMIT_DIR)} sends the folder in which you are"
        reading.complain("W206", message, hint, (SCRIPT,))
    return str(reading.folder)


def _slurms(reading: BatchFile) -> dict[str, Any]:
    """Return the variables of the script that the header alone decides."""
    file_name = FilePath(reading.document.file).name
    variables: dict[str, Any] = {"SLURM_JOB_NAME": reading.option("job-name") or file_name}
    for name, variable in ENVIRONMENT.items():
        if reading.has(name):
            variables[variable] = Placed(reading.option(name), reading.at(name))
    if per_node := _tasks_per_node(reading):
        variables["SLURM_NTASKS_PER_NODE"] = str(per_node)
    if tasks := reading.number("ntasks"):
        variables |= {name: str(tasks) for name in ("SLURM_NTASKS", "SLURM_NPROCS")}
    for name in ("cpus-per-task", "ntasks-per-gpu"):
        reading.number(name)
    if reading.has("overcommit"):
        variables["SLURM_OVERCOMMIT"] = "1"
    if reading.has("mem") and (size := _mebibytes(reading)):
        variables["SLURM_MEM_PER_NODE"] = str(size)
    return variables


def _array(reading: BatchFile) -> dict[str, Any]:
    """Return the variables of one task of an array, which `--set` chooses."""
    index = reading.given_values().get(ARRAY_TASK)
    if index is None or not reading.has("array"):
        return {}
    ranges: list[range] = []
    step = 1
    for part in reading.option("array").partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            reading.wrong("array", "write indexes and ranges: 0-15, 1,3,5-9:2")
            return {}
        step = int(match[3] or 1) or 1
        ranges.append(range(int(match[1]), int(match[2] or match[1]) + 1, step))
    bounds = [number for part in ranges if part for number in (part[0], part[-1])]
    is_number = re.fullmatch(r"[0-9]{1,9}", index)
    if not is_number or not any(int(index) in part for part in ranges):
        message = f"--set {ARRAY_TASK} is '{index}', which '--array' does not have"
        reading.complain("E203", message, "write one of its indexes", reading.at("array"))
    return {
        ARRAY_TASK: index,
        "SLURM_ARRAY_TASK_COUNT": str(sum(map(len, ranges))),
        "SLURM_ARRAY_TASK_MIN": str(min(bounds, default=0)),
        "SLURM_ARRAY_TASK_MAX": str(max(bounds, default=0)),
        "SLURM_ARRAY_TASK_STEP": str(step),
    }


def _time(reading: BatchFile) -> dict[str, Any]:
    seconds = reading.seconds("time")
    if not seconds:
        return {}
    return {"max_duration": Placed(format_duration(min(seconds, _LONGEST_S)), reading.at("time"))}


def _mebibytes(reading: BatchFile) -> int:
    """Return `--mem` in MiB; 0 for all memory. Without a unit it is in MiB (sbatch(1))."""
    match = _SIZE.fullmatch(reading.option("mem"))
    if match is None:
        reading.wrong("mem", "write a size: 64G, 900M, 0 for all")
        return 0
    return int(int(match[1]) * _MIB[match[2].upper()])


def _requires(reading: BatchFile, nodes: Any) -> dict[str, Any]:
    """Return what the nodes must be: GPUs and memory."""
    needs: dict[str, Any] = {}
    model, on_node = _gres(reading)
    place = "gres"
    for name in ("gpus-per-node", "gpus"):
        if reading.has(name):
            count = _gpu_count(reading, name)
            most = nodes.value if isinstance(nodes, Placed) else nodes
            divided = -(-count // most) if isinstance(most, int) else 0
            on_node = count if name == "gpus-per-node" else max(on_node, divided)
            model = reading.option(name).rpartition(":")[0] or model
            place = name
            break
    if on_node:
        needs["gpus"] = Placed(f"{on_node}..", reading.at(place))
    known = {plain_gpu(entry.gpu.model): entry.gpu.model for entry in catalogue().values()}
    if model and plain_gpu(model) in known:
        needs["gpu"] = Placed([known[plain_gpu(model)]], reading.at(place))
    elif model:
        reading.leave_out(place, f"no GPU is called {model} here; the number is compared")
    if reading.has("mem") and (size := _mebibytes(reading)):
        needs["memory"] = Placed(f"{size}MB..", reading.at("mem"))
    return {"requires": needs} if needs else {}


def _outputs(reading: BatchFile) -> dict[str, Any]:
    """Return the files of `--output` and `--error` that are in the working folder."""
    patterns = []
    for name in ("output", "error"):
        path = reading.option(name)
        if path and not path.startswith(("/", "~")) and ".." not in FilePath(path).parts:
            plain = re.sub(r"%[0-9]*[A-Za-z]", "*", path.replace("%%", "%")).removeprefix("./")
            patterns.append(Placed(plain, reading.at(name)))
    unique = {pattern.value: pattern for pattern in patterns}
    return {"outputs": Placed(list(unique.values()), patterns[0].at)} if patterns else {}


def _container(reading: BatchFile) -> dict[str, Any]:
    """Return image and volumes of pyxis' options: `nvcr.io#nvidia/pytorch:25.03-py3`."""
    at = reading.at("container-image")
    reference = reading.option("container-image")
    if not reference:
        if reading.has("container-mounts"):
            reading.leave_out("container-mounts", "there is no `--container-image`")
        return {}
    if reference.endswith(".sqsh") or reference.startswith(("/", "./")):
        hint = "name the image in its registry: nvcr.io#nvidia/pytorch:25.03-py3"
        reading.refuse("container-image", "is a file", hint)
        return {}
    reference = reference.removeprefix("docker://").replace("#", "/", 1)
    if OTHERS_IMAGES.search(reference):
        reading.refuse("container-image", f"is {reference}, which is {WHY_NO_OTHERS}", TAKE_CUDA)
    mounts = [part for part in reading.option("container-mounts").split(",") if part]
    volumes = [":".join((mount.split(":") * 2)[:2]) for mount in mounts]
    run: dict[str, Any] = {"image": Placed(reference, at)}
    if volumes:
        run["volumes"] = Placed(volumes, reading.at("container-mounts"))
    return run


def _signal(reading: BatchFile) -> dict[str, Any]:
    text = reading.option("signal")
    if not text:
        return {}
    match = _SIGNAL.fullmatch(text)
    if match is None:
        reading.wrong("signal", "write a signal and seconds: USR1@120, B:TERM@60")
        return {}
    if not reading.seconds("time"):
        reading.leave_out("signal", "without `--time` there is no limit before which to send it")
        return {}
    return {
        "signal": match[2].upper(),
        "signal_to": "script" if (match[1] or "").upper() == "B" else "steps",
        "signal_s": int(match[3] or 60),
    }


def _commands(reading: BatchFile, travelling: Iterable[str]) -> str:
    """Return the shell text that writes the script as a copy, and runs it as Slurm does."""
    names = ("output", "error", "input", "open-mode")
    settings: dict[str, Any] = {n: reading.option(n) for n in names if reading.option(n)}
    if reading.option("open-mode") not in ("", "append", "truncate"):
        reading.wrong("open-mode", "write append or truncate")
    if travelled := sorted(name for name in travelling if not name.startswith("SLURM_")):
        settings["travelled"] = travelled
    if on_node := _gpus_per_node(reading):
        settings["gpus_per_node"] = on_node
    settings |= {"time_s": reading.seconds("time")} | _signal(reading)
    script, end = reading.script, _END
    while end in script:
        end += "_"
    folder = '"$GPUCTL_RUN_FOLDER"/bin/slurm'
    text = json.dumps(settings, sort_keys=True).replace("'", "'\\''")
    return (
        f"cat > {folder}/slurm_script <<'{end}'\n{script.rstrip(chr(10))}\n{end}\n"
        f"exec {folder}/sbatch '{text}'\n"
    )
