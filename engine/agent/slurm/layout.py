"""How many tasks a step has, and on which nodes: the rules of src/srun/opt.c.

Slurm's short forms are read here: lists of nodes, counts of tasks, patterns of file names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.agent.slurm.resources import Free, Need
from engine.agent.slurm.srun_options import Options

_PATTERN = re.compile(r"%(%|[0-9]*[A-Za-z])")
_NUMERIC = "AajJnrst"


def split_list(text: str) -> list[str]:
    """Return the entries of a list that commas separate, outside of brackets."""
    entries, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            entries.append(text[start:place])
            start = place + 1
    return [entry.strip() for entry in (*entries, text[start:]) if entry.strip()]


def expand(text: str) -> list[str]:
    """Return the names of `tux[1-3,05],other`: tux1, tux2, tux3, tux05, other."""
    return [name for entry in split_list(text) for name in _expand_entry(entry)]


def _expand_entry(entry: str) -> list[str]:
    begin, bracket, rest = entry.partition("[")
    if not bracket:
        return [entry]
    inner, _, end = rest.partition("]")
    numbers: list[str] = []
    for part in inner.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            numbers += (f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1))
        else:
            numbers.append(part)
    return [f"{begin}{number}{tail}" for number in numbers for tail in _expand_entry(end)]


def repeat_counts(counts: Iterable[int]) -> str:
    """Return `2(x3),1` for 2, 2, 2, 1, as SLURM_TASKS_PER_NODE has it."""
    groups = ((count, len(list(same))) for count, same in itertools.groupby(counts))
    return ",".join(f"{count}(x{times})" if times > 1 else f"{count}" for count, times in groups)


def expand_counts(text: str) -> list[int]:
    """Return the counts of `2(x3),1`."""
    counts: list[int] = []
    for entry in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", entry)
        if match:
            counts += [int(match[1])] * int(match[2] or 1)
    return counts


def file_name(pattern: str, values: Mapping[str, str]) -> str:
    """Return the pattern with its symbols replaced; `values` are theirs by letter.

    A backslash switches symbols off; a number pads numbers with zeros, up to 10 digits (sbatch(1),
    FILENAME PATTERN). A symbol without a value is empty.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def replace(match: re.Match[str]) -> str:
        symbol = match[1]
        if symbol == "%":
            return "%"
        letter, width = symbol[-1], min(int(symbol[:-1] or 0), 10)
        value = values.get(letter, "")
        return value.zfill(width) if letter in _NUMERIC and value.isdecimal() else value

    return _PATTERN.sub(replace, pattern)


def environment_values(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a pattern's symbols that are the same for a whole job."""
    job = environment.get("SLURM_JOB_ID", "")
    array = environment.get("SLURM_ARRAY_TASK_ID", "")
    return {
        "A": environment.get("SLURM_ARRAY_JOB_ID", job),
        "a": array or "4294967294",  # NO_VAL, which Slurm writes for a job that is no array
        "b": str(int(array) % 10) if array.isdecimal() else "",
        "J": job,
        "j": job,
        "N": environment.get("SLURMD_NODENAME", ""),
        "n": environment.get("SLURM_NODEID", "0"),
        "r": environment.get("SLURM_RESTART_COUNT", "0"),
        "s": "4294967291",  # SLURM_BATCH_SCRIPT
        "t": "0",
        "u": environment.get("USER", "root"),
        "x": environment.get("SLURM_JOB_NAME", ""),
    }


@dataclass(frozen=True)
class Job:
    """The nodes of the job: their names, and the processors and GPUs of each."""

    names: tuple[str, ...]
    cpus: int
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The tasks of a step: `counts` on each of as many nodes, and the rule of their order."""

    counts: tuple[int, ...]
    plane: int = 0

    def tasks(self) -> list[list[int]]:
        """Return the numbers of the tasks on each node: block, or round the nodes by planes."""
        total, nodes = sum(self.counts), len(self.counts)
        numbers: list[list[int]] = [[] for _ in range(nodes)]
        if not self.plane:
            start = 0
            for node, count in enumerate(self.counts):
                numbers[node] = list(range(start, start + count))
                start += count
            return numbers
        number, node = 0, 0
        while number < total:
            room = min(self.plane, self.counts[node] - len(numbers[node]), total - number)
            numbers[node] += range(number, number + room)
            number, node = number + room, (node + 1) % nodes
        return numbers


def step_size(options: Options, job: Job, notes: list[str]) -> tuple[int, int]:
    """Return the numbers of nodes and tasks of the step.

    The variables of the job count as options that the command line overrides: `-N` alone with the
    job's `--ntasks-per-node` makes new tasks of both.
    """
    nodes, is_own = options.number("nodes"), "nodes" in options.on_line
    if nodes is None and options.has("nodelist"):
        nodes, is_own = len(dict.fromkeys(expand(options.text("nodelist")))), True
    if nodes is None:
        nodes = len(job.names)
    if nodes > len(job.names):
        raise ValueError(
            f"the step wants {nodes} nodes, and the job has {len(job.names)}:"
            " Requested node configuration is not available"
        )
    tasks, per_node = options.number("ntasks"), options.number("ntasks-per-node")
    if tasks is not None and per_node:
        if "ntasks" not in options.on_line and is_own:
            tasks = None
        elif tasks > nodes * per_node:
            notes.append(
                f"can't honor --ntasks-per-node set to {per_node}: {tasks} tasks on {nodes} nodes"
            )
            options.drop("ntasks-per-node")
    if tasks is None:
        tasks = nodes * (per_node or 1)
    if tasks < 1:
        raise ValueError("invalid number of tasks (-n 0)")
    return min(nodes, tasks), tasks


def step_layout(options: Options, nodes: int, tasks: int) -> Layout:
    """Return the counts by node: as even as can be, the first nodes have one more."""
    per_node = options.number("ntasks-per-node")
    if per_node and tasks <= nodes * per_node and "ntasks" not in options.on_line:
        full, rest = divmod(tasks, per_node)
        counts = [per_node] * full + ([rest] if rest else [])
        if len(counts) == nodes:
            return Layout(tuple(counts), _plane(options))
    counts = [tasks // nodes + (node < tasks % nodes) for node in range(nodes)]
    return Layout(tuple(counts), _plane(options))


def _plane(options: Options) -> int:
    rule = options.text("distribution").lower().partition(":")[0].partition(",")[0]
    if rule in ("", "*", "block"):
        return 0
    if rule == "cyclic":
        return 1
    if rule.startswith("plane=") and rule[6:].isdecimal() and int(rule[6:]):
        return int(rule[6:])
    raise ValueError(f"--distribution is '{rule}': gpuctl has block, cyclic and plane=N")


def gpu_count(text: str) -> int:
    """Return the number of `4`, `h100:4` and `gpu:h100:4`; 1 without a number, 0 for none."""
    if text.lower() in ("", "none"):
        return 0
    entries = [entry for entry in text.split(",") if "gpu" in entry] or [text]
    last = entries[0].partition("(")[0].replace("=", ":").rpartition(":")[2]
    return int(last) if last.isdecimal() else 1


class Choice:
    """The choice of a step's nodes and of what it takes on each."""

    def __init__(self, options: Options, job: Job, layout: Layout) -> None:
        self._options, self._job, self._layout = options, job, layout
        self._gpus = [self._gpus_on(count) for count in layout.counts]
        if max(self._gpus) > len(job.gpus):
            raise ValueError(
                f"the step wants {max(self._gpus)} GPUs of a node, and the job has"
                f" {len(job.gpus)}: Invalid generic resource (gres) specification"
            )
        self.nodes: list[int] = []

    def choose(self, free: list[Free]) -> Mapping[int, Need] | None:
        """Return what the step takes by node, None if it must wait; keep the nodes in `nodes`."""
        left = self._candidates()
        chosen: list[int] = []
        needs = [
            Need(self._cpus_on(count), gpus)
            for count, gpus in zip(self._layout.counts, self._gpus)  # noqa: B905  Python 3.9
        ]
        for need in needs:
            node = next((node for node in left if _fits(need, free[node])), None)
            if node is None:
                return None
            left.remove(node)
            chosen.append(node)
        count = len(needs)
        if not set(self._listed()[:count]) <= set(chosen):
            return None  # another step has a node that `--nodelist` requires
        self.nodes = sorted(chosen)
        if self._options.has("overlap"):
            needs = [Need(0, min(0, need.gpus)) for need in needs]
        return dict(zip(self.nodes, needs))  # noqa: B905

    def gpus_without_share(self, node: int) -> tuple[int, ...]:
        """Return the GPUs of a step that shares them."""
        count = self._gpus[self.nodes.index(node)]
        return self._job.gpus if count < 0 else self._job.gpus[:count]

    def _candidates(self) -> list[int]:
        options, names = self._options, self._job.names
        order = list(range(len(names)))
        for name in ("nodelist", "exclude"):
            unknown = [node for node in expand(options.text(name)) if node not in names]
            if unknown and name == "nodelist":
                raise ValueError(f"{unknown[0]} is no node of the job: {', '.join(names)}")
        excluded = expand(options.text("exclude"))
        order = [node for node in order if names[node] not in excluded]
        if options.has("nodelist"):
            first = self._listed()
            order = first + [node for node in order if node not in first]
        if options.has("relative"):
            offset = (options.number("relative") or 0) % len(names)
            order = [node for node in order if node >= offset]
        if len(order) < len(self._layout.counts):
            raise ValueError(
                f"{len(order)} nodes are left for the step, it wants {len(self._layout.counts)}"
            )
        return order

    def _listed(self) -> list[int]:
        """Return the nodes of `--nodelist`, each once."""
        listed = dict.fromkeys(expand(self._options.text("nodelist")))
        return [self._job.names.index(name) for name in listed]

    def _cpus_on(self, count: int) -> int:
        """Return the processors that the tasks take; all of the node without `--exact`."""
        options = self._options
        if options.has("overlap"):
            return 0
        if options.has("exact") or options.has("exclusive") or "cpus-per-task" in options.on_line:
            return min(self._job.cpus, count * (options.number("cpus-per-task") or 1))
        return self._job.cpus

    def _gpus_on(self, count: int) -> int:
        """Return the GPUs that the step asks for on a node with `count` tasks; -1 for all."""
        options = self._options
        own = [
            n for n in ("gpus", "gpus-per-task", "gpus-per-node", "gres") if n in options.on_line
        ]
        if options.has("gpus-per-task") and (not own or "gpus-per-task" in own):
            return count * gpu_count(options.text("gpus-per-task"))
        if options.has("ntasks-per-gpu"):
            return -(-count // (options.number("ntasks-per-gpu") or 1))
        for name in own or ("gpus-per-node", "gpus"):
            if options.has(name):
                count = gpu_count(options.text(name))
                return -(-count // len(self._layout.counts)) if name == "gpus" else count
        return -1


def _fits(need: Need, free: Free) -> bool:
    return need.cpus <= free.cpus and need.gpus <= len(free.gpus)


def gpus_of_task(options: Options, gpus: tuple[int, ...], local: int) -> list[int]:
    """Return the GPUs that the task with this number on its node sees."""
    if options.has("gpus-per-task"):
        each = gpu_count(options.text("gpus-per-task"))
        return list(gpus[local * each : (local + 1) * each])
    if options.has("ntasks-per-gpu"):
        place = local // (options.number("ntasks-per-gpu") or 1)
        return list(gpus[place : place + 1])
    rule = options.text("gpu-bind").lower().replace("verbose,", "")
    if rule.startswith("single:") and rule[7:].isdecimal() and gpus:
        return [gpus[local // max(1, int(rule[7:])) % len(gpus)]]
    if rule.startswith("map_gpu:") and gpus:
        numbers = [int(part) for part in rule[8:].split(",") if part.isdecimal()]
        return [gpus[numbers[local % len(numbers)] % len(gpus)]] if numbers else list(gpus)
    if rule.startswith("per_task:") and rule[9:].isdecimal():
        each = int(rule[9:])
        return list(gpus[local * each : (local + 1) * each])
    return list(gpus)
