"""srun's options: those that count, those without effect here, and those that are refused.

Names and letters are those of `slurm_opt.c`. An option is also read from its variable
(srun(1), INPUT ENVIRONMENT VARIABLES), which the command line overrides.
"""

from __future__ import annotations

from collections.abc import Mapping

# name: (letter, kind of value, variables)
_COUNT: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "nodes": ("N", "=", ()),
    "ntasks": ("n", "=", ("SLURM_NTASKS", "SLURM_NPROCS")),
    "ntasks-per-node": ("", "=", ("SLURM_NTASKS_PER_NODE",)),
    "ntasks-per-gpu": ("", "=", ("SLURM_NTASKS_PER_GPU",)),
    "cpus-per-task": ("c", "=", ()),
    "gpus": ("G", "=", ("SLURM_GPUS",)),
    "gpus-per-node": ("", "=", ("SLURM_GPUS_PER_NODE",)),
    "gpus-per-task": ("", "=", ("SLURM_GPUS_PER_TASK",)),
    "gres": ("", "=", ("SLURM_STEP_GRES",)),
    "gpu-bind": ("", "=", ("SLURM_GPU_BIND",)),
    "nodelist": ("w", "=", ()),
    "exclude": ("x", "=", ()),
    "relative": ("r", "=", ()),
    "distribution": ("m", "=", ("SLURM_DISTRIBUTION",)),
    "label": ("l", "", ("SLURM_LABELIO",)),
    "kill-on-bad-exit": ("K", "?", ("SLURM_KILL_BAD_EXIT",)),
    "wait": ("W", "=", ("SLURM_WAIT",)),
    "unbuffered": ("u", "", ("SLURM_UNBUFFEREDIO",)),
    "input": ("i", "=", ("SLURM_STDINMODE", "SRUN_INPUT")),
    "output": ("o", "=", ("SLURM_STDOUTMODE", "SRUN_OUTPUT")),
    "error": ("e", "=", ("SLURM_STDERRMODE", "SRUN_ERROR")),
    "open-mode": ("", "=", ("SLURM_OPEN_MODE",)),
    "chdir": ("D", "=", ("SLURM_WORKING_DIR",)),
    "export": ("", "=", ("SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV")),
    "overlap": ("", "?", ("SLURM_OVERLAP",)),
    "exact": ("", "", ("SLURM_EXACT",)),
    "exclusive": ("", "?", ("SLURM_EXCLUSIVE",)),
    "immediate": ("I", "?", ()),
    "mpi": ("", "=", ("SLURM_MPI_TYPE",)),
    "multi-prog": ("", "", ("SLURM_SRUN_MULTI",)),
    "job-name": ("J", "=", ()),
    "time": ("t", "=", ()),
    "quiet": ("Q", "", ()),
}
_SILENT = {
    # accounting, and what holds for a whole job
    **dict.fromkeys(
        ("account=A", "partition=p", "qos=q", "reservation=", "comment=", "wckey=", "nice?")
    ),
    **dict.fromkeys(("licenses=L", "mail-type=", "mail-user=", "clusters=M", "constraint=C")),
    **dict.fromkeys(("acctg-freq=", "profile=", "propagate?", "network=", "mcs-label=", "extra=")),
    **dict.fromkeys(("verbose:v", "disable-status:X", "quit-on-interrupt:", "no-kill?k")),
    **dict.fromkeys(("overcommit:O", "oversubscribe:s", "contiguous:", "switches=", "whole:")),
    **dict.fromkeys(("threads=T", "msg-timeout=", "slurmd-debug=", "treewidth=", "preserve-env:E")),
    **dict.fromkeys(("mem=", "mem-per-cpu=", "mem-per-gpu=", "cpus-per-gpu=", "tmp=", "mincpus=")),
    **dict.fromkeys(("use-min-nodes:", "spread-job:", "resv-ports?", "wait-for-children:")),
    **dict.fromkeys(("container-mount-home:", "no-container-mount-home:", "oom-kill-step?")),
    **dict.fromkeys(("send-libs?", "gres-flags=", "jobid=", "external-launcher?", "begin=b")),
}
_BINDINGS = (
    "cpu-bind=", "cpu_bind=", "mem-bind=", "hint=", "threads-per-core=", "cores-per-socket=",
    "sockets-per-node=", "core-spec=S", "thread-spec=", "cpu-freq=", "gpu-freq=", "accel-bind=",
    "tres-bind=", "ntasks-per-core=",
)  # fmt: skip
_NOTED = {
    **dict.fromkeys(_BINDINGS, "tasks may use all of their node"),
    "ignore-signals=": "tasks get the signals that srun gets",
    "signal=": "write #SBATCH --signal",
}
_REFUSED = {
    "pty?": "a run has no terminal; `gpuctl ssh` opens one",
    "bcast?": "use sbcast, or `workdir`: every node has the job's folder",
    "container-image=": "write #SBATCH --container-image: the run's image is the steps' too",
    "container-mounts=": "write #SBATCH --container-mounts",
    "container-name=": "write #SBATCH --container-image",
    "container-workdir=": "write --chdir",
    "container=": "write #SBATCH --container-image",
    "container-id=": "write #SBATCH --container-image",
    "het-group=": "a run has nodes of one kind",
    "pack-group=": "a run has nodes of one kind",
    "extra-node-info=B": "write --ntasks-per-node",
    "ntasks-per-socket=": "write --ntasks-per-node",
    "ntasks-per-tres=": "write --ntasks-per-gpu",
    "gpus-per-socket=": "write --gpus-per-node",
    "tres-per-task=": "write --gpus-per-task and --cpus-per-task",
    "prolog=": "call it in the script",
    "epilog=": "call it in the script",
    "task-prolog=": "call it before the program: bash -c '…; exec program'",
    "task-epilog=": "call it behind the program: bash -c 'program; …'",
    "x11?": "a run has no screen",
    "async:": "write & behind the command",
    "dependency=d": "write wait before the command",
    "array=a": "steps are no arrays",
    "help:h": "srun(1) has it",
    "test-only:": "run the step",
    "no-allocate:Z": "run the step",
}
NO_MPI = (
    "gpuctl's srun starts no ranks of MPI: call mpirun in the script, which finds the job's nodes"
    " and tasks"
)


class Options:
    """The options of a call of srun. `command` is the program and its arguments."""

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        self.notes: list[str] = []
        self.on_line: set[str] = set()
        self._values: dict[str, str] = {}
        for name, (_, _, variables) in _COUNT.items():
            for variable in variables:
                if variable in environment:
                    self._values[name] = environment[variable]
        self.command = self._read(list(words))

    def has(self, name: str) -> bool:
        """Return whether the option is given; a flag's variable must not be 0, no or empty."""
        value = self._values.get(name)
        if value is None:
            return False
        is_flag = _COUNT[name][1] != "="
        return name in self.on_line or not is_flag or value.lower() not in ("0", "no", "false")

    def text(self, name: str) -> str:
        """Return the option's value; empty if there is none."""
        return self._values.get(name, "")

    def number(self, name: str) -> int | None:
        """Return the option's whole number, of `2-4` the last; None without the option."""
        if name not in self._values:
            return None
        text = self._values[name].rpartition("-")[2].rpartition(":")[2]
        if not text.isdecimal():
            raise ValueError(f"--{name} is '{self._values[name]}', which is no number")
        return int(text)

    def drop(self, name: str) -> None:
        """Forget the option."""
        self._values.pop(name, None)

    def _read(self, words: list[str]) -> list[str]:
        """Read the options before the program, as getopt_long(3) does; return the rest."""
        while words and words[0].startswith("-") and words[0] != "-":
            word = words.pop(0)
            if word == "--":
                break
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                self._take(*_by_name(name), value if equals else None, words)
                continue
            while word[1:]:
                name, kind = _by_letter(word[1])
                if kind == "":
                    self._take(name, kind, None, words)
                    word = "-" + word[2:]
                else:
                    self._take(name, kind, word[2:] or None, words)
                    break
        return words

    def _take(self, name: str, kind: str, value: str | None, words: list[str]) -> None:
        if kind == "=" and value is None:
            if not words:
                raise ValueError(f"option '--{name}' requires an argument")
            value = words.pop(0)
        if name in _REFUSALS:
            raise ValueError(f"--{name}: {_REFUSALS[name]}")
        if name in _COUNT:
            self._values[name] = value or ""
            self.on_line.add(name)
        elif name in _NOTES and (value or "") not in ("none", "no", "off", "nomultithread"):
            self.notes.append(f"--{name} has no effect: {_NOTES[name]}")


def _split(entry: str) -> tuple[str, str, str]:
    """Return name, kind of value and letter of `wait=W`; `:` is for an option without a value."""
    for sign in "=?:":
        name, separator, letter = entry.partition(sign)
        if separator:
            return name, sign.replace(":", ""), letter
    raise AssertionError(entry)


_TABLE = {name: (kind, letter) for name, (letter, kind, _) in _COUNT.items()}
for _entry in (*_SILENT, *_NOTED, *_REFUSED):
    _name, _kind, _letter = _split(_entry)
    _TABLE[_name] = (_kind, _letter)
_TABLE["tasks-per-node"] = ("=", "")
_LETTERS = {letter: name for name, (_, letter) in _TABLE.items() if letter}
_NOTES = {_split(entry)[0]: text for entry, text in _NOTED.items()}
_REFUSALS = {_split(entry)[0]: text for entry, text in _REFUSED.items()}


def _by_name(name: str) -> tuple[str, str]:
    matches = [name] if name in _TABLE else [own for own in _TABLE if own.startswith(name)]
    if len(matches) != 1:
        raise ValueError(f"unrecognized option '--{name}'")
    name = "ntasks-per-node" if matches[0] == "tasks-per-node" else matches[0]
    return name, _TABLE[matches[0]][0]


def _by_letter(letter: str) -> tuple[str, str]:
    if letter not in _LETTERS:
        raise ValueError(f"invalid option -- '{letter}'")
    name = _LETTERS[letter]
    return name, _TABLE[name][0]
