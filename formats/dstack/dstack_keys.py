"""The keys of dstack's task, and gpuctl's answer to each: one table for the reader and the page.

The models of dstackai/dstack@511c318c (core/models/configurations.py, profiles.py, resources.py;
2026-08-21, read 2026-11-23).
"""

from collections.abc import Mapping

from config.generated_page import merged_rows
from config.run.run_file import Task
from formats.key_table import Key, answer_lines, key_lines

_CLUSTER = "it belongs to a cluster, and"

KEYS = (
    Key("type", "does", "`task`; dstack's other types are refused"),
    Key("name", "does", "up to 41 letters; without it the run has the file's name"),
    Key("nodes", "does", "as many nodes of the cluster"),
    Key("groups", "does", "each group is a role with its commands; ranks in the groups' order"),
    Key("commands", "does", "run in one bash, up to the first that fails"),
    Key("entrypoint", "does", "one program: the entrypoint's words, then `commands` as arguments"),
    Key("shell", "does", "bash runs the commands; another shell is started with all of them"),
    Key("image", "does", "also without `commands`: then its entrypoint and command run"),
    Key("registry_auth", "does", "plain text, `${{ secrets.NAME }}` or `${{ env.NAME }}`"),
    Key("user", "does", "the commands change to the user; without it they run as root"),
    Key("privileged", "does", "the container gets all devices of the node"),
    Key("docker", "does", "without `image` commands run on the node; its docker must be there"),
    Key("python", "does", "uv makes an environment with this Python on each node"),
    Key("nvcc", "does", "the node's nvcc is put on PATH; the run fails if there is none"),
    Key("working_dir", "does", "made if it is missing; by default the image's folder"),
    Key("env", "does", "a bare NAME is a secret of your environment, as `${{ secrets.NAME }}` is"),
    Key("volumes", "does", "folders of the node, in the container; network volumes are refused"),
    Key("startup_order", "does", "the same three orders"),
    Key("stop_criteria", "does", "the same two criteria"),
    Key(
        "files",
        "does",
        "on every node before the job starts, at their remote paths",
    ),
    Key("repos", "does", "one, a folder with its changes or an address: at its path on each node"),
    Key("ports", "does", "of node 0, on this machine while `gpuctl run` or `attach` follows"),
    Key(
        "retry",
        "does",
        "`error` and `interruption`, in up to 1000 attempts; a run needs no capacity",
    ),
    Key("max_duration", "does", "every form: `3600`, `90m`, `1w`, `off`"),
    Key("resources", "checks", "`gpu`, `cpu`, `memory`, `shm_size`, `disk`; see above"),
    Key("instance_types", "checks", "the cluster's type is one of them"),
    Key("regions", "checks", "the cluster is in one of them"),
    Key("availability_zones", "checks", "the cluster is in one of them"),
    Key("spot_policy", "checks", "`spot` and `on-demand` against the cluster's instances"),
    Key("max_price", "checks", "against the type's on-demand price in the catalogue"),
    Key("backends", "checks", "`aws` must be among them"),
    Key("fleets", "checks", "a fleet's name is read as a cluster's: it is chosen, or a warning"),
    Key("stop_duration", "leaves out", "a job that is stopped has 10 s to end, as in dstack"),
    Key("tags", "leaves out", f"{_CLUSTER} tags of AWS's resources are in the cluster file"),
    Key("idle_duration", "leaves out", f"{_CLUSTER} `lifetime` of the cluster file ends it"),
    Key("reservation", "leaves out", f"{_CLUSTER} `capacity.id` of the cluster file has it"),
    Key("creation_policy", "leaves out", "a run never makes a cluster: `gpuctl up` does"),
    Key("instances", "leaves out", "a run takes nodes of its cluster that are close together"),
    Key("backend_options", "leaves out", "the cluster file has the options of AWS"),
    Key("priority", "leaves out", "a queue has an order and no priorities: `gpuctl queue move`"),
    Key("utilization_policy", "leaves out", "no run is stopped because its GPUs are idle"),
    Key("schedule", "leaves out", "runs start when `gpuctl run` is called: use cron"),
    Key("single_branch", "leaves out", "one commit is fetched, without its history"),
    Key("home_dir", "leaves out", "dstack ignores it too"),
    Key("setup", "leaves out", "dstack ignores it too"),
    Key("init", "leaves out", "a task of dstack has no such key today"),
    Key("build", "leaves out", "a task of dstack has no such key today"),
    Key("cache", "leaves out", "a task of dstack has no such key today"),
    Key("retry_policy", "leaves out", "write `retry`, which replaced it"),
    Key("termination_policy", "leaves out", f"{_CLUSTER} `lifetime` of the cluster file ends it"),
    Key("termination_idle_time", "leaves out", f"{_CLUSTER} `lifetime` of the file ends it"),
    Key("pool_name", "leaves out", "a run goes to the cluster that you name with --cluster"),
    Key("instance_name", "leaves out", "a run takes nodes of its cluster"),
    Key("dstack", "does", "`false`; `true` is refused: there is no server of dstack"),
)
"""Every key that dstack's models of a task accept, with those of earlier versions at the end."""

TABLE: Mapping[str, Key] = {key.name: key for key in KEYS}

OURS_ALONE = frozenset(Task.model_fields) - TABLE.keys()
"""Keys of gpuctl's task that dstack does not have; they work in dstack's files too."""

DSTACKS_ALONE = TABLE.keys() - Task.model_fields.keys()
"""Keys that make a file of `type: task` one of dstack's."""

TYPES: Mapping[str, str] = {
    "dev-environment": "log in with `gpuctl ssh CLUSTER NODE`",
    "service": "gpuctl serves no endpoints; write a task that starts the server",
    "fleet": "write a cluster file for `gpuctl up`: nodes, instance_type, region",
    "gateway": "gpuctl serves no endpoints",
    "volume": "write `storage.shared` into the cluster file",
    "preset": "write a template: `gpuctl templates` lists them",
}
"""The types of dstack's files that are no tasks, and what to do instead."""


def dstack_reference() -> str:
    """Return the generated part of docs/look-up/dstack-keys.md: answers, keys and other types."""
    types = merged_rows((f"`{name}`", instead) for name, instead in TYPES.items())
    return "\n".join(
        [
            "## Every key",
            "",
            *answer_lines("dstack", KEYS),
            *key_lines(KEYS),
            "## Other types",
            "",
            "| `type` | instead |",
            "| --- | --- |",
            *types,
            "",
        ]
    )
