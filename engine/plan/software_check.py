"""The frameworks and programs that a run needs, compared with those of its nodes."""

import re
from collections.abc import Iterator, Mapping, Sequence

from config.cluster.job_software import JOB_SOFTWARE
from config.run.run_file import Run
from engine.plan.network.user_settings import commands_of
from nodes.inventory import Inventory, Node

_LAUNCHERS = {"torchrun": "torch", "deepspeed": "deepspeed", "horovod": "horovod", "ray": "ray"}
"""The software of types of runs that start its launcher."""

_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_PYTHON = re.compile(r"""(?:^|[;"'])[ \t]*(?:import|from)[ \t]+(\w+)""", re.MULTILINE)
_SCRIPT = re.compile(r"^(?:import|from)[ \t]+(\w+)", re.MULTILINE)
"""The imports of a Python file that are in no block: one in `try` may fail."""
_MODULE = re.compile(r"(?:^|\s)-m[ \t]+(\w+)")
_COMMAND = re.compile(
    r"(?:^|[;&|(]|\bexec\b|\btime\b)[ \t]*(?:\w+=\S*[ \t]+)*([\w-]+)", re.MULTILINE
)
_BRINGS_ITS_OWN = re.compile(
    r"\b(?:pip3?|uv|conda|mamba|micromamba|pixi|poetry|apt|apt-get|dnf|yum|module|spack)[ \t]"
    r"|\bactivate\b|\b(?:docker|podman|singularity|apptainer|enroot)[ \t]"
    r"|(?:^|\s)PATH=|/bin/(?:python|torchrun)",
    re.MULTILINE,
)
"""Commands that install software, choose another environment, or start a container."""
_FETCHES = re.compile(r"(?:^|[;&|])[ \t]*(?:source|\.)[ \t]|\b(?:curl|wget)[ \t]", re.MULTILINE)
"""Commands that fetch programs, or take another environment from a file."""
_OWN_VARIABLES = frozenset({"PATH", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"})


def missing_software(
    run: Run, inventory: Inventory, nodes: Sequence[Node], scripts: Mapping[str, str]
) -> Iterator[str]:
    """Yield a warning if the run needs software that its nodes do not have.

    `scripts` are the texts of the files that its commands start. There is none for a run with an
    image, for one that brings its software, and for nodes of which nothing is known.
    """
    texts = [_COMMENT.sub("", text) for text in commands_of(run)]
    roles = (run.env, *(role.env for role in run.roles.values()))
    if run.image is not None or any(_OWN_VARIABLES & set(env) for env in roles):
        return
    needed, everything = set(_needed(run, texts, scripts)), (*texts, *scripts.values())
    if "SLURM_JOB_NAME" in run.env:  # a batch script, which gets gpuctl's `srun`
        needed.discard("slurm")
    if any(map(_FETCHES.search, everything)):
        return
    if any(map(_BRINGS_ITS_OWN.search, everything)):
        needed = {key for key in needed & JOB_SOFTWARE.keys() if not JOB_SOFTWARE[key].is_module}
    lacking = [
        software.title
        for key, software in JOB_SOFTWARE.items()
        if key in needed and any(node.software and key not in node.software for node in nodes)
    ]
    if lacking:
        it = "it" if len(lacking) == 1 else "them"
        yield (
            f"run {run.name} needs {' and '.join(lacking)}, and the nodes of cluster"
            f" {inventory.cluster} do not have {it}: name a container `image` with {it} in the run"
            f" file, or install {it} by `setup.commands` of the cluster file"
        )


def _needed(run: Run, texts: Sequence[str], scripts: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys of the software that the run's launcher, commands and scripts need."""
    if run.type in _LAUNCHERS:
        yield _LAUNCHERS[run.type]
    programs = {name: key for key, software in JOB_SOFTWARE.items() for name in software.programs}
    shell = [*texts, *(text for path, text in scripts.items() if not path.endswith(".py"))]
    for text in shell:
        yield from (programs[name] for name in _COMMAND.findall(text) if name in programs)
        yield from _MODULE.findall(text)
        yield from _PYTHON.findall(text)
    for path, text in scripts.items():
        if path.endswith(".py"):
            yield from _SCRIPT.findall(text)
