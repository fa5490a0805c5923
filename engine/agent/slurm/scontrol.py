"""`scontrol` inside a job: `show hostnames`, `show hostlist` and `show job`."""

from __future__ import annotations

import os
import sys

from engine.agent.slurm.layout import expand, split_list

_FIELDS = (
    ("JobId", "SLURM_JOB_ID"),
    ("JobName", "SLURM_JOB_NAME"),
    ("Account", "SLURM_JOB_ACCOUNT"),
    ("Partition", "SLURM_JOB_PARTITION"),
    ("NumNodes", "SLURM_JOB_NUM_NODES"),
    ("NumTasks", "SLURM_NTASKS"),
    ("NodeList", "SLURM_JOB_NODELIST"),
    ("BatchHost", "SLURMD_NODENAME"),
    ("WorkDir", "SLURM_SUBMIT_DIR"),
    ("StdOut", "GPUCTL_SLURM_STDOUT"),
    ("StdErr", "GPUCTL_SLURM_STDERR"),
)


def scontrol(words: list[str]) -> int:
    """Print what is asked about this job, and return the exit status."""
    verb, *rest = [word for word in words if not word.startswith("-")] or [""]
    what = rest[0] if rest else ""
    if "show".startswith(verb) and verb and "hostnames".startswith(what) and len(what) > 5:
        nodes = rest[1] if rest[1:] else os.environ.get("SLURM_JOB_NODELIST", "")
        sys.stdout.write("".join(f"{name}\n" for name in expand(nodes)))
        return 0
    if verb == "show" and what in ("hostlist", "hostlistsorted"):
        names = split_list(rest[1] if rest[1:] else os.environ.get("SLURM_JOB_NODELIST", ""))
        sys.stdout.write(",".join(sorted(names) if what.endswith("sorted") else names) + "\n")
        return 0
    if verb == "show" and what in ("job", "jobs", "jobid"):
        pairs = [f"{title}={os.environ.get(name, '(null)')}" for title, name in _FIELDS]
        sys.stdout.write("\n   ".join(["JobState=RUNNING Reason=None", *pairs]) + "\n\n")
        return 0
    text = "gpuctl has `scontrol show hostnames`, `show hostlist` and `show job` alone"
    sys.stderr.write(f"scontrol: error: {' '.join(words)}: {text}\n")
    return 1
