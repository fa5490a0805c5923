"""Commands of Terraform, dstack, kubectl, Slurm and SkyPilot: what does the same here."""

_UP = "`gpuctl up FILE` creates or changes a cluster, and `gpuctl run FILE` starts a job"
_DOWN = "`gpuctl down CLUSTER` removes everything of a cluster, and `gpuctl stop RUN` ends a run"
_LIST = "`gpuctl status` lists clusters, and `gpuctl ps` runs"
_SHOW = "`gpuctl status CLUSTER` shows a cluster, and `gpuctl results RUN` what a run measured"
_SUBMIT = "`gpuctl run FILE` starts a job on a cluster that `gpuctl up FILE` has made"
_STOP = "`gpuctl stop RUN` ends a run, and `gpuctl down CLUSTER` removes its cluster"

OTHERS = {
    **dict.fromkeys(("apply", "create"), _UP),
    **dict.fromkeys(("destroy", "delete", "terminate", "rm", "remove"), _DOWN),
    **dict.fromkeys(("list", "ls", "get", "squeue"), _LIST),
    **dict.fromkeys(("show", "describe", "output", "state"), _SHOW),
    **dict.fromkeys(("submit", "launch", "start", "sbatch", "srun"), _SUBMIT),
    **dict.fromkeys(("cancel", "kill", "scancel"), _STOP),
    **dict.fromkeys(("refresh", "diff"), "`gpuctl drift CLUSTER` shows what others have changed"),
    "login": "gpuctl uses the AWS CLI's sign-in: `aws sso login`, then `gpuctl doctor`",
    "fleet": _LIST,
    "offer": "`gpuctl capacity TYPE` shows where a type is available, and its price",
    "fmt": "`gpuctl validate FILE` checks a file, and changes nothing",
    "metrics": "`gpuctl top RUN` shows a run's metrics live",
    "port-forward": "`gpuctl attach RUN` forwards the run's ports",
}
"""By the word that people type: the commands of gpuctl that do it, and what each does."""
