"""sbatch's options, and gpuctl's answer to each: one table for the reader and the page.

Names, letters and which of them take a value: `slurm_opt.c` of SchedMD/slurm@284c3b95, and its
manual sbatch(1), read 2026-11-28; `container-image` and `container-mounts` are of NVIDIA's pyxis.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from formats.key_table import Key, answer_lines, key_lines

Value = Literal["", "=", "?"]
"""Whether an option takes no value, a value, or a value only behind `=`."""


@dataclass(frozen=True)
class Option(Key):
    """An option of sbatch."""

    letter: str = ""
    value: Value = "="

    @property
    def cell(self) -> str:
        """The option in a table."""
        return f"`--{self.name}`{f' (`-{self.letter}`)' if self.letter else ''}"


_WHOLE = "a run has the whole of its nodes"
_KEEP = "a run that fails is not started again by itself"
_BINDING = "tasks may use every processor and memory of their node"
_ACCOUNTING = "no accounts, partitions and priorities here"
_NO_VALUE = "no effect on a run"

OPTIONS = (
    # resources
    Option("nodes", "does", "a number; of `2-4` as many as are free", "N"),
    Option("ntasks", "does", "what `srun` starts without an own number", "n"),
    Option("ntasks-per-node", "does", "the same, on each node"),
    Option("tasks-per-node", "does", "another name of `--ntasks-per-node`"),
    Option("ntasks-per-gpu", "does", "tasks that share a GPU"),
    Option("cpus-per-task", "does", "`SLURM_CPUS_PER_TASK`; no task is bound to processors", "c"),
    Option("gpus-per-node", "checks", "a node has as many; the job sees the first of them"),
    Option("gres", "checks", "`gpu:N` and `gpu:MODEL:N`; other resources are left out"),
    Option("gpus", "checks", "divided by the number of nodes", "G"),
    Option("gpus-per-task", "does", "each task of `srun` sees its own GPUs"),
    Option("mem", "checks", "the memory of a node; a job may use all of it"),
    Option("exclusive", "does", _WHOLE, value="?"),
    Option("distribution", "does", "`block` and `cyclic` between nodes", "m"),
    Option("overcommit", "does", "a node starts any number of tasks", "O", ""),
    Option("time", "does", "`max_duration` of the run, in whole minutes as in Slurm", "t"),
    Option("signal", "does", "to the steps, with `B:` to the script; seconds before the limit"),
    # the job
    Option("job-name", "does", "the run's name, in lower case, with hyphens", "J"),
    Option("output", "does", "written on node 0 and fetched; the output is shown too", "o"),
    Option("error", "does", "written on node 0 and fetched; the output is shown too", "e"),
    Option("input", "does", "a file on node 0", "i"),
    Option("open-mode", "does", "`truncate` or `append`"),
    Option("chdir", "does", "a folder of yours; one that you do not have is left out", "D"),
    Option("export", "does", "what of your environment travels"),
    Option("container-image", "does", "the run's image, for the script and its steps"),
    Option("container-mounts", "does", "folders of a node in the container"),
    Option("container-workdir", "leaves out", "the job starts in its working folder"),
    Option("container-name", "leaves out", "a run's container ends with the run"),
    Option("container-mount-home", "leaves out", "`container-mounts` mounts folders", value=""),
    Option("no-container-mount-home", "does", "no home is mounted", value=""),
    Option("wait", "does", "`gpuctl run` waits; `--detach` does not", "W", ""),
    Option("no-requeue", "does", _KEEP, value=""),
    Option("no-kill", "leaves out", "a lost node ends the run; `retry` of a run file", "k", "?"),
    Option("requeue", "leaves out", f"{_KEEP}: `retry` of a run file does", value="?"),
    Option("wait-all-nodes", "does", "a run starts when all of its nodes are ready"),
    Option("ignore-pbs", "does", "lines of `#PBS` are not read", value=""),
    Option("parsable", "does", _NO_VALUE, value=""),
    Option("quiet", "does", _NO_VALUE, "Q", ""),
    Option("verbose", "does", _NO_VALUE, "v", ""),
    Option("kill-on-invalid-dep", "does", "there are no dependencies"),
    # refused
    Option(
        "array",
        "refuses",
        "`--set SLURM_ARRAY_TASK_ID=N` runs one task of it; a loop with `--queue --detach` all",
        "a",
    ),
    Option("dependency", "refuses", "`gpuctl run A && gpuctl run B`, or `gpuctl wait`", "d"),
    Option("begin", "refuses", "start it then: `at` and `cron` of your machine do", "b"),
    Option("hold", "refuses", "start the run when it may begin", "H", ""),
    Option("wrap", "refuses", "write the command into the script"),
    Option("container", "refuses", "`--container-image` names an image of a registry"),
    Option("container-id", "refuses", "`--container-image` names an image of a registry"),
    Option("gpus-per-socket", "refuses", "write `--gpus-per-node`"),
    Option("ntasks-per-socket", "refuses", "write `--ntasks-per-node`"),
    Option("ntasks-per-core", "refuses", "write `--ntasks-per-node`"),
    Option("ntasks-per-tres", "refuses", "write `--ntasks-per-gpu`"),
    Option("tres-per-task", "refuses", "write `--gpus-per-task` and `--cpus-per-task`"),
    Option("extra-node-info", "refuses", "write `--ntasks-per-node`", "B"),
    Option("export-file", "refuses", "write `--export`"),
    Option("external", "refuses", "a script is what a run runs", value=""),
    Option("bb", "refuses", "write `storage.shared` into the cluster file"),
    Option("bbf", "refuses", "write `storage.shared` into the cluster file"),
    Option("test-only", "refuses", "`gpuctl run --dry-run` prints the plan", value=""),
    Option("help", "refuses", "remove it", "h", ""),
    Option("usage", "refuses", "remove it", value=""),
    Option("version", "refuses", "remove it", "V", ""),
    # bindings and hardware
    Option("cpus-per-gpu", "leaves out", _BINDING),
    Option("mem-per-cpu", "leaves out", _BINDING),
    Option("mem-per-gpu", "leaves out", _BINDING),
    Option("mem-bind", "leaves out", _BINDING),
    Option("mem-update", "leaves out", _BINDING),
    Option("oom-kill-step", "leaves out", "the kernel ends what has no memory", "", "?"),
    Option("gpu-bind", "leaves out", "`--gpus-per-task` gives each task its GPUs"),
    Option("tres-bind", "leaves out", "`--gpus-per-task` gives each task its GPUs"),
    Option("gpu-freq", "leaves out", "GPUs have their usual clocks"),
    Option("cpu-freq", "leaves out", "processors have their usual clocks"),
    Option("hint", "leaves out", _BINDING),
    Option("threads-per-core", "leaves out", _BINDING),
    Option("cores-per-socket", "leaves out", _BINDING),
    Option("sockets-per-node", "leaves out", _BINDING),
    Option("core-spec", "leaves out", _BINDING, "S"),
    Option("thread-spec", "leaves out", _BINDING),
    Option("mincpus", "leaves out", "the cluster file chooses the instance type"),
    Option("tmp", "leaves out", "the cluster file has the disks"),
    Option("gres-flags", "leaves out", _BINDING),
    Option("propagate", "leaves out", "a job has the limits of its node", value="?"),
    Option("profile", "leaves out", "`gpuctl top` and `report` have the nodes' counters"),
    Option("constraint", "leaves out", "the cluster file chooses the instance type", "C"),
    Option("prefer", "leaves out", "the cluster file chooses the instance type"),
    Option("cluster-constraint", "leaves out", "`--cluster` of gpuctl chooses a cluster"),
    Option("batch", "leaves out", "the script runs on node 0"),
    Option("nodelist", "leaves out", "a run takes nodes of its cluster", "w"),
    Option("nodefile", "leaves out", "a run takes nodes of its cluster", "F"),
    Option("exclude", "leaves out", "a run takes nodes of its cluster", "x"),
    Option("contiguous", "leaves out", "nodes are next to each other", value=""),
    Option("switches", "leaves out", "nodes are next to each other"),
    Option("segment", "leaves out", "nodes are next to each other"),
    Option("consolidate-segments", "leaves out", "nodes are next to each other", value=""),
    Option("spread-segments", "leaves out", "nodes are next to each other", value=""),
    Option("spread-job", "leaves out", "nodes are next to each other", value=""),
    Option("use-min-nodes", "leaves out", "a range takes as many as are free", value=""),
    Option("network", "leaves out", "`network` of a run file chooses a preset"),
    Option("reboot", "leaves out", "nodes do not boot for a run", value=""),
    Option("delay-boot", "leaves out", "nodes do not boot for a run"),
    Option("resv-ports", "leaves out", "every port of a node is free", value="?"),
    Option("time-min", "leaves out", "`--time` counts"),
    Option("deadline", "leaves out", "`--time` counts"),
    Option("get-user-env", "leaves out", "jobs have the environment of a login", value=""),
    Option("stepmgr", "leaves out", "`srun` needs no manager of steps", value=""),
    Option("runtime", "leaves out", "the node's docker or podman runs containers"),
    # accounting
    Option("account", "accounting", _ACCOUNTING, "A"),
    Option("partition", "accounting", _ACCOUNTING, "p"),
    Option("qos", "accounting", _ACCOUNTING, "q"),
    Option("reservation", "accounting", _ACCOUNTING),
    Option("nice", "accounting", _ACCOUNTING, value="?"),
    Option("priority", "accounting", _ACCOUNTING),
    Option("wckey", "accounting", _ACCOUNTING),
    Option("licenses", "accounting", _ACCOUNTING, "L"),
    Option("comment", "accounting", _ACCOUNTING),
    Option("extra", "accounting", _ACCOUNTING),
    Option("acctg-freq", "accounting", _ACCOUNTING),
    Option("mcs-label", "accounting", _ACCOUNTING),
    Option("clusters", "accounting", _ACCOUNTING, "M"),
    Option("cluster", "accounting", _ACCOUNTING),
    Option("oversubscribe", "accounting", _WHOLE, "s", ""),
    Option("share", "accounting", _WHOLE, value=""),
    Option("immediate", "accounting", "`--queue` of gpuctl waits for nodes", "I", "?"),
    Option("uid", "accounting", "commands run as root"),
    Option("gid", "accounting", "commands run as root"),
    Option("mail-type", "accounting", "`notify` of a run file calls you"),
    Option("mail-user", "accounting", "`notify` of a run file calls you"),
)

ENVIRONMENT: Mapping[str, str] = {
    "account": "SLURM_JOB_ACCOUNT",
    "partition": "SLURM_JOB_PARTITION",
    "qos": "SLURM_JOB_QOS",
    "reservation": "SLURM_JOB_RESERVATION",
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "mem-per-gpu": "SLURM_MEM_PER_GPU",
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "threads-per-core": "SLURM_THREADS_PER_CORE",
    "distribution": "SLURM_DISTRIBUTION",
}
"""The variable of the script that has the value of an option (sbatch(1), OUTPUT ENVIRONMENT)."""


def options_reference() -> str:
    """Return the generated part of docs/look-up/sbatch-options.md: answers and options."""
    options = sorted(OPTIONS, key=lambda option: option.name)
    return "\n".join(
        [
            "## Answers",
            "",
            *answer_lines("Slurm", OPTIONS),
            "## Options",
            "",
            *key_lines(options, "option"),
        ]
    )
