"""Commands of Terraform, dstack, kubectl, Slurm and SkyPilot: what does the same here."""

_UP = "`gpuctl up FILE` creates or changes a cluster, and `gpuctl run FILE` starts a job"
_DOWN = "`gpuctl down CLUSTER` removes everything of a cluster, and `gpuctl stop RUN` ends a run"
_LIST = "`gpuctl status` lists clusters, and `gpuctl ps` runs"
_SHOW = "`gpuctl status CLUSTER` shows a cluster, and `gpuctl results RUN` what a run measured"
_SUBMIT = "`gpuctl run FILE` starts a job on a cluster that `gpuctl up FILE` has made"
_HEAL = "`gpuctl heal CLUSTER NODE` replaces a node, and the others stay as they are"
_RESIZE = "change `nodes` in the cluster file: `gpuctl up FILE` makes the cluster as the file says"
_AGAIN = "`gpuctl run FILE` starts the job again; `retry` in its file does that by itself"
_PRICES = "`gpuctl capacity TYPE` shows where a type is available, and its price"
_COSTS = "`gpuctl cost` shows what clusters have cost, and `gpuctl ps` the runs so far"
_CHECK = "`gpuctl validate FILE` checks a file, and `gpuctl doctor` this machine"
_STOP = "`gpuctl stop RUN` ends a run, and `gpuctl down CLUSTER` removes its cluster"

OTHERS = {
    **dict.fromkeys(("apply", "create"), _UP),
    **dict.fromkeys(("destroy", "delete", "terminate", "rm", "remove"), _DOWN),
    **dict.fromkeys(("list", "ls", "get", "squeue", "sinfo", "fleet", "history", "sacct"), _LIST),
    **dict.fromkeys(("nodes", "clusters", "instances", "runs", "jobs", "workspace"), _LIST),
    **dict.fromkeys(("show", "describe", "output", "state"), _SHOW),
    **dict.fromkeys(("submit", "launch", "start", "sbatch", "srun", "salloc", "job"), _SUBMIT),
    **dict.fromkeys(("taint", "untaint", "cordon", "drain", "replace", "reboot"), _HEAL),
    **dict.fromkeys(("scale", "resize", "update"), _RESIZE),
    **dict.fromkeys(("restart", "resume", "rollout", "retry"), _AGAIN),
    **dict.fromkeys(("offer", "price", "prices", "gpus", "show-gpus"), _PRICES),
    **dict.fromkeys(("check", "test", "lint"), _CHECK),
    **dict.fromkeys(("usage", "cost-report", "billing"), _COSTS),
    **dict.fromkeys(("autostop", "autodown"), "`lifetime` of the cluster file ends a cluster"),
    **dict.fromkeys(
        ("terraform", "dstack", "kubectl", "sky", "slurm"),
        "gpuctl needs no other tool: write its command without it, and `gpuctl --help` lists all",
    ),
    **dict.fromkeys(
        ("secret", "secrets"), "`{secret: NAME}` in a run file names a secret of yours"
    ),
    **dict.fromkeys(("volume", "volumes"), "`storage` of the cluster file has file systems"),
    **dict.fromkeys(
        ("events", "watch"), "`gpuctl attach RUN` follows a run, and `gpuctl logs RUN` prints it"
    ),
    **dict.fromkeys(("console", "shell"), "`gpuctl ssh CLUSTER` opens a shell on a node"),
    "force-unlock": "the next command removes the lock of a process that is gone, or says how to",
    "import": "`gpuctl up FILE` makes a cluster; one of your machines has `hosts` in its file",
    "help": "`gpuctl --help` lists the commands, and `gpuctl COMMAND --help` its options",
    "version": "`gpuctl --version` shows the version",
    "completion": "`gpuctl --install-completion` completes commands in your shell",
    **dict.fromkeys(("cancel", "kill", "scancel"), _STOP),
    **dict.fromkeys(("refresh", "diff"), "`gpuctl drift CLUSTER` shows what others have changed"),
    "login": "gpuctl uses the AWS CLI's sign-in: `aws sso login`, then `gpuctl doctor`",
    "fmt": "`gpuctl validate FILE` checks a file, and changes nothing",
    "metrics": "`gpuctl top RUN` shows a run's metrics live",
    "port-forward": "`gpuctl attach RUN` forwards the run's ports",
}
"""By the word that people type: the commands of gpuctl that do it, and what each does."""
