"""The registry of all diagnostic codes; the documentation is generated from it.

E0 the text is not YAML as gpuctl reads it; E1 its shape is wrong; E2 a value is wrong; W is a
warning, which does not make a file invalid. Codes keep their meaning for ever.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Code:
    """A code's meaning, the remedy, and a file that shows it: `example` is the wrong lines.

    Codes of rules about several values also have the reason of the rule.
    """

    meaning: str
    example: str
    reason: str = ""
    remedy: str = field(kw_only=True)


CODES: dict[str, Code] = {
    "E001": Code(
        "The text is not YAML.",
        "nodes: [1",
        remedy="Close the bracket or quote at the place, or mend the indentation.",
    ),
    "E002": Code("A tab where YAML requires spaces.", "\\tnodes: 2", remedy="Write spaces."),
    "E003": Code(
        "A key is given twice; both lines are named.",
        "nodes: 2 … nodes: 3",
        remedy="Remove one of both lines.",
    ),
    "E004": Code(
        "A character that YAML forbids, or text that is not UTF-8.",
        "name: de\\x00mo",
        remedy="Save the file as UTF-8, and remove the character.",
    ),
    "E005": Code(
        "The file has no content.",
        "# only a comment",
        remedy="Write the file's keys: `gpuctl explain cluster`, `gpuctl explain run`.",
    ),
    "E006": Code(
        "The file holds several documents.",
        "--- … ---",
        remedy="Write each document into a separate file.",
    ),
    "E007": Code(
        "A YAML tag that gpuctl does not know.", "name: !Ref demo", remedy="Remove the tag."
    ),
    "E008": Code(
        "Nested or repeated beyond reason, or an alias within itself.",
        "env: &a [*a]",
        remedy="Write the value out instead of repeating it by aliases.",
    ),
    "E009": Code("A key is a list or a mapping.", "[a, b]: 1", remedy="Write the key as text."),
    "E101": Code(
        "Unknown key; the nearest allowed one, or all of them, are named.",
        "node: 2",
        remedy="Correct the key's name, or remove it.",
    ),
    "E102": Code("A required key is missing.", "lifetime: {}", remedy="Add the key."),
    "E103": Code(
        "A value of the wrong type.",
        "nodes: two",
        remedy="Write a value of the type that the message names.",
    ),
    "E104": Code(
        "A bare value that YAML readers understand differently.",
        "team: no, nodes: 010",
        remedy="Put the text into quotes.",
    ),
    "E105": Code(
        "The file is not a mapping.",
        "- nodes: 2",
        remedy="Begin the file with keys, such as `name: demo`.",
    ),
    "E106": Code(
        "Neither a cluster file nor a run file.",
        "name: demo",
        remedy="Add `instance_type` or `hosts` (a cluster file), or `type` (a run file).",
    ),
    "E107": Code(
        "A run file given to a command for clusters, or the reverse.",
        "type: task",
        remedy="Name a file of the other kind: `up` takes cluster files, `run` takes run files.",
    ),
    "E108": Code(
        "More than 100 mistakes; the others are not listed.",
        "k1: … k200: …",
        remedy="Correct those that are listed, and validate again.",
    ),
    "E201": Code(
        "A value that is not among the allowed ones.",
        "strategy: clustre",
        remedy="Write one of the values that the message lists.",
    ),
    "E202": Code(
        "A number out of its range, or a list with too few entries.",
        "nodes: 0",
        remedy="Write a number within the range.",
    ),
    "E203": Code(
        "A text in the wrong form.",
        "name: My Cluster",
        remedy="Write the text in the form that the message shows.",
    ),
    "E204": Code(
        "Not the form of an EC2 instance type's name.",
        "p5.48xlage",
        remedy="Take one of the nearest names, or look the type up at EC2.",
    ),
    "E205": Code(
        "Not an IPv4 range, or one of the wrong size.",
        "cidr: 10.0.0.0/8",
        remedy="Write a range of the size that the message names, such as 10.213.0.0/16.",
    ),
    "E206": Code(
        "A tag key that AWS or gpuctl uses itself.", "aws:owner: me", remedy="Choose another key."
    ),
    "E207": Code(
        "An `env` entry that names no variable, or one that is set already.",
        "- NCCL DEBUG=INFO",
        remedy="Write `NAME: value`, and each name once.",
    ),
    "E208": Code(
        "A zone that is not in the region.",
        "zones: [eu-west-1a]",
        remedy="Name zones of the cluster's region.",
    ),
    "E209": Code(
        "A version of software that the image cannot have.",
        "driver: '580'",
        remedy="Choose a version that the image has, or another image.",
    ),
    "E210": Code(
        "Capacity that lacks a key its type needs, or has one it ignores.",
        "id: cr-0a",
        remedy="Add or remove the key that the message names: `gpuctl explain cluster.capacity`.",
    ),
    "E211": Code(
        "Private access that does not say where people come from.",
        "access: private",
        remedy="Write `network.ssh_from`, the range from which you connect.",
    ),
    "E212": Code(
        "A range or an access that the network cannot have.",
        "{vpc: vpc-0a, cidr: …}",
        remedy="Remove the key that the message names, or change the access.",
    ),
    "E213": Code(
        "A volume or file system of a size or speed that AWS does not have.",
        "iops: 40000",
        remedy="Write a size or speed within the limits that the message names.",
    ),
    "E214": Code(
        "A storage key without effect, or one that the image or the network cannot have.",
        "type: efs …",
        remedy="Remove the key, choose another image or type of storage, or name the VPC.",
    ),
    "E215": Code(
        "A folder that is taken.",
        "shared: {type: efs, path: /usr}",
        remedy="Choose another folder.",
    ),
    "E216": Code(
        "A template that does not exist, or is no run file.",
        "extends: nothing",
        remedy="Take a name that `gpuctl templates` lists.",
    ),
    "E217": Code(
        "Templates that extend each other in a circle, or too many.",
        "extends: itself",
        remedy="Remove one `extends`.",
    ),
    "E218": Code(
        "Another type than the template's.",
        "{extends: hello, type: mpi}",
        "The other keys of the template are those of its type, and would mean nothing.",
        remedy="Leave `type` out, or extend a template of the type.",
    ),
    "E219": Code(
        "Roles that the type does not have, or node counts that do not add up.",
        "roles: {boss: {}}",
        "Every node has one role: hostfile, `TF_CONFIG` and Ray's resources are made from them.",
        remedy="`nodes` is all of them; one role may leave its number out, and has what is left.",
    ),
    "E220": Code(
        "`launcher_as_node` and what it depends on do not agree.",
        "{nodes: 1, launcher_as_node: false}",
        "With ranks on the launcher, both roles have ranks: `roles` that speak of one alone"
        " leave open what the other does. Without, one node alone has nowhere to put ranks.",
        remedy="Write the other role too (`worker: {}`), or change `launcher_as_node` or `nodes`.",
    ),
    "E221": Code(
        "A variable that gpuctl or the launcher sets.",
        "env: {GPUCTL_RUN_ID: x}",
        "A launcher that finds another value than the run was planned with runs another job,"
        " or hangs.",
        remedy="Remove it, or choose another name; [modes.md](modes.md) lists them by type.",
    ),
    "E222": Code(
        "A range that ends before it begins.",
        "nnodes: 4..2",
        "No number lies in it.",
        remedy="Write the smaller number first.",
    ),
    "E223": Code(
        "A key of a run without effect.",
        "registry_auth: … without image",
        "Whoever wrote it expects something that would not happen.",
        remedy="Remove it, or write what it needs.",
    ),
    "E224": Code(
        "A manifest of a kind that gpuctl does not run.",
        "kind: PyTorchJob",
        remedy="Use a MPIJob, a Volcano Job or a TrainJob, or write a run file.",
    ),
    "E225": Code(
        "A part of a manifest that gpuctl cannot carry out.",
        "envFrom: …",
        remedy="Do without this part: [manifests](../do/manifests.md) says what takes its place.",
    ),
    "E226": Code(
        "A placeholder that nobody has filled in.",
        "image: <account>.dkr.ecr…",
        remedy="Write the value in the place of the placeholder.",
    ),
    "E227": Code(
        "A placeholder of envsubst without a value.",
        "image: ${IMAGE}",
        remedy="Write `--set NAME=VALUE`, or `export NAME=VALUE` before.",
    ),
    "E228": Code(
        "A part of a file of dstack, SkyPilot or Slurm that gpuctl cannot carry out.",
        "gpu: MI300X:8",
        remedy="Change the file: the pages of [dstack's](../do/dstack.md) and"
        " [SkyPilot's tasks](../do/skypilot.md) and of [Slurm's scripts](../do/slurm.md) have an"
        " answer to each key or option.",
    ),
    "E229": Code(
        "A file of dstack that is no task.",
        "type: service",
        remedy="Only tasks run: change `type` to `task`.",
    ),
    "E230": Code(
        "A total budget without a lifetime.",
        "budget: {max_total: 100}",
        remedy="Add `lifetime: {max: …}`.",
    ),
    "E231": Code(
        "An image without a driver for the type's GPUs.",
        "{instance_type: p3dn.24xlarge, image: dlami-al2023}",
        "NVIDIA's open driver, which the images have, supports no GPU before Turing.",
        remedy="Choose a newer type, or name an image of yours (ami-…) with NVIDIA's proprietary"
        " driver, of branch 580 or older.",
    ),
    "E232": Code(
        "A key for rented clusters in a file with `hosts`.",
        "{hosts: [{address: gpu1}], instance_type: p5.48xlarge}",
        remedy="Remove the key, or `hosts`.",
    ),
    "E233": Code(
        "Hosts that contradict each other.",
        "hosts: [{address: gpu1}, {address: gpu1}]",
        remedy="Write each host once, and `internal` for one host at a time.",
    ),
    "E241": Code(
        "A path of `files` or `outputs` that cannot be in the working folder.",
        "outputs: [/scratch/x]",
        "Each run has its own working folder, so runs do not disturb one another.",
        remedy="Write a relative path without `..`; [code.md](../do/code.md) describes the folder.",
    ),
    "E242": Code(
        "A file or folder of yours that does not exist or cannot be read.",
        "workdir: no",
        remedy="Correct the path; it counts from the run file's folder.",
    ),
    "E243": Code(
        "Code that is larger than `code_limit`.",
        "code_limit: 1M",
        remedy="Name what the job does not need in `.gpuctlignore`, or raise `code_limit`.",
    ),
    "E244": Code(
        "A webhook that `notify` cannot send to.",
        "webhook: http://example.com",
        "The text of a notification crosses the network, and a webhook's URL is often a secret.",
        remedy="Write `{secret: NAME}`, or an https:// address;"
        " [notifications.md](../do/notifications.md).",
    ),
    "E247": Code(
        "A range of nodes for a type that needs one number.",
        "{type: nccl-tests, nodes: {min: 2, max: 4}}",
        "What it measures or computes is another thing on fewer nodes.",
        remedy="Write one number.",
    ),
    "E248": Code(
        "An entry of commands that bash cannot read by itself.",
        "commands: ['echo \"hello']",
        "With an open quote or here-document bash would take the following entries, and what gpuctl"
        " adds to them, for text: they would not run.",
        remedy="Close it in the same entry; several lines are one entry below `- |`.",
    ),
    "E249": Code(
        "Commands that call the launcher of their type.",
        "{type: torchrun, commands: [torchrun train.py]}",
        "Every rank would start another job, as large as the run.",
        remedy="Write only the program that the launcher starts, or use `type: task`.",
    ),
    "W202": Code(
        "More than a /16 may try to ssh in.",
        "ssh_from: 0.0.0.0/0",
        remedy="Name the address or range from which you connect.",
    ),
    "W203": Code(
        "Your template hides gpuctl's template of the same name.",
        "extends: hello",
        remedy="Rename your template if you want gpuctl's.",
    ),
    "W204": Code(
        "A part of a manifest that means nothing here.",
        "nodeSelector: {…}",
        remedy="Nothing: the job runs without it.",
    ),
    "W205": Code(
        "A type with accelerators that gpuctl's catalogue does not have.",
        "p5f.48xlarge",
        "It may be a typing mistake, or newer than the catalogue.",
        remedy="Compare it with the nearest names; a type that EC2 offers works.",
    ),
    "W206": Code(
        "A part of a file of dstack, SkyPilot or Slurm that gpuctl leaves out.",
        "retry: true",
        remedy="Nothing, if the job does not need it: the pages of [dstack's](../do/dstack.md) and"
        " [SkyPilot's tasks](../do/skypilot.md) and of [Slurm's scripts](../do/slurm.md) say why.",
    ),
    "W207": Code(
        "A key that neither the other tool nor gpuctl has; with `--strict` it is E101.",
        "comands: […]",
        remedy="Correct the key's name.",
    ),
    "W208": Code(
        "A value of `--set` that fills in nothing.",
        "--set IMGAE=x",
        remedy="Correct the name, or leave it out.",
    ),
    "W209": Code(
        "The number of processes that a TrainJob starts on a node without 'numProcPerNode'.",
        "trainer: {command: [torchrun, train.py]}",
        "Kubeflow starts one for each GPU that 'resourcesPerNode' asks for, or else for each CPU,"
        " at least one; a node of the cluster may have more.",
        remedy="Write `numProcPerNode`, or the GPUs in `resourcesPerNode`.",
    ),
    "W210": Code(
        "A value of `env`, or an argument of mpirun, that only a shell would read.",
        "env: {PATH: /opt/x:$PATH}",
        "No shell reads `env`; a job with such a PATH finds no program.",
        remedy="Write `${PATH}` in `env`, the value on the node. Set in `commands` what needs a"
        " shell, or a variable that a launcher sets for each rank.",
    ),
    "W211": Code(
        "A manifest's launcher that starts more ranks than its workers have slots.",
        "slotsPerWorker: 1 … mpirun -np 16",
        "Open MPI ends with 'not enough slots'; other launchers put several ranks on one GPU.",
        remedy="Lower `-np`, or raise `slotsPerWorker` or the workers' `replicas`.",
    ),
    "W212": Code(
        "A placeholder in a script of an envsubst template that nothing fills in.",
        "bash -c 'train ${DATA}'",
        "The file has other placeholders; envsubst would fill in this one too.",
        remedy="Write `--set NAME=VALUE`, or `export NAME=VALUE` before.",
    ),
    "W241": Code(
        "Links of your code that lead out of its folder.",
        "workdir: .",
        remedy="Copy the files into the folder if the job needs them.",
    ),
}
