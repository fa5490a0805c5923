"""The keys of SkyPilot's task, and gpuctl's answer to each: one table for the reader and the page.

SkyPilot's schemas (sky/utils/schemas.py and docs/source/reference/yaml-spec.rst of
skypilot-org/skypilot, read 2026-11-28).
"""

from formats.key_table import Key, answer_lines, key_lines

_CLUSTER_FILE = "the cluster file has it"

TASK_KEYS = (
    Key("name", "does", "in lower case, with hyphens; without it the run has the file's name"),
    Key(
        "workdir",
        "does",
        "relative to the folder in which you are; of a repository `url` and `ref`",
    ),
    Key("num_nodes", "does", "as many nodes of the cluster"),
    Key("setup", "does", "a separate shell before `run`, on every node"),
    Key("run", "does", "the same on every node; the first node that fails ends the run"),
    Key("envs", "does", "one without a value is taken from your environment, as a secret"),
    Key("secrets", "does", "by name alone: from your environment, or a file of your secrets"),
    Key("file_mounts", "does", "files and folders of yours; buckets and volumes are refused"),
    Key("resources", "checks", "the next table"),
    Key("service", "refuses", "gpuctl serves no endpoints; write a task that starts the server"),
    Key("pool", "refuses", "gpuctl has no pools; `gpuctl up` makes a cluster"),
    Key("volumes", "refuses", "write `storage.shared` into the cluster file"),
    Key("event_callback", "leaves out", "`notify` of a run file calls you"),
    Key("config", "leaves out", "gpuctl's settings and the cluster file take its place"),
    Key("experimental", "leaves out", "gpuctl's settings and the cluster file take its place"),
    Key("inputs", "leaves out", "SkyPilot chooses clouds by it"),
    Key("outputs", "leaves out", "SkyPilot chooses clouds by it; `outputs` of a run file fetches"),
)
RESOURCE_KEYS = (
    Key("accelerators", "checks", "one of the GPUs, and their number on a node"),
    Key("instance_type", "checks", "the type"),
    Key("infra", "checks", "region and zone; another cloud than AWS is refused"),
    Key("cloud", "checks", "another cloud than AWS is refused"),
    Key("region", "checks", "the region"),
    Key("zone", "checks", "the zone"),
    Key("cpus", "checks", "at least as many: `8` as `8+`"),
    Key("memory", "checks", "at least as much: `64` as `64+`"),
    Key("disk_size", "checks", "at least as much"),
    Key("use_spot", "checks", "`true`: spot instances; `false`: none of them"),
    Key("image_id", "does", "`docker:IMAGE`; a machine image belongs to the cluster file"),
    Key("ports", "does", "of node 0, forwarded to this machine and not open to the Internet"),
    Key("any_of", "checks", "one of the alternatives that AWS can have"),
    Key("ordered", "checks", "as `any_of`: the cluster exists already"),
    Key("volumes", "refuses", "write `storage.shared` into the cluster file"),
    Key("container_image", "refuses", "write `image_id: docker:IMAGE`"),
    Key("accelerator_args", "leaves out", "only TPUs have them"),
    Key("autostop", "leaves out", "`lifetime` of the cluster file ends a cluster"),
    Key("job_recovery", "leaves out", "`retry` of a run file starts a run again"),
    Key("spot_recovery", "leaves out", "`retry` of a run file starts a run again"),
    Key("disk_tier", "leaves out", _CLUSTER_FILE),
    Key("ephemeral_storage", "leaves out", _CLUSTER_FILE),
    Key("local_disk", "leaves out", "nodes have the NVMe disks of their type"),
    Key("network_tier", "leaves out", "nodes have EFA where their type has it"),
    Key("labels", "leaves out", "`tags` of the cluster file"),
    Key("max_hourly_cost", "leaves out", "`budget` of the cluster file"),
    Key("priority", "leaves out", "a queue has an order and no priorities: `gpuctl queue move`"),
    Key("priority_class", "leaves out", "a queue has an order and no priorities"),
)


def keys_reference() -> str:
    """Return the generated part of docs/look-up/skypilot-keys.md: answers and keys."""
    return "\n".join(
        [
            "## Answers",
            "",
            *answer_lines("SkyPilot", (*TASK_KEYS, *RESOURCE_KEYS)),
            "## A task",
            "",
            *key_lines(TASK_KEYS),
            "## `resources`",
            "",
            *key_lines(RESOURCE_KEYS),
        ]
    )
