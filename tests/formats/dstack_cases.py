"""What people read about dstack's files: the cases of test_dstack.py, as `line:column: …`."""

TASK = "type: task\nname: t\ncommands: [hostname]\n"
IMAGE = "type: task\nname: t\nimage: a/b\n"

DSTACK_CASES: list[tuple[str, list[str]]] = [
    (
        TASK + "nods: 2\n",
        [
            "4:1: W207 unknown key 'nods': neither dstack nor gpuctl has it; did you mean 'nodes'?",
        ],
    ),
    (
        TASK + "gpu: 8\n",
        [
            "4:1: W207 unknown key 'gpu': neither dstack nor gpuctl has it; write 'gpu' below "
            "'resources'",
        ],
    ),
    (
        TASK + "colour: red\n",
        [
            "4:1: W207 unknown key 'colour': neither dstack nor gpuctl has it; remove it: it has "
            "no effect",
        ],
    ),
    (
        TASK + "resources: {gpus: 8, cpu: {cores: 2}}\n",
        [
            "4:13: W207 unknown key 'resources.gpus': neither dstack nor gpuctl has it; did you "
            "mean 'gpu'?",
            "4:28: W207 unknown key 'resources.cpu.cores': neither dstack nor gpuctl has it; "
            "allowed here: arch, count",
        ],
    ),
    (
        TASK + "retry_policy: {retry: true}\nidle_duration: 5m\ncreation_policy: reuse\n",
        [
            "4:1: W206 'retry_policy' is left out: write `retry`, which replaced it; "
            "remove it if the job does not need it",
            "5:1: W206 'idle_duration' is left out: it belongs to a cluster, and `lifetime` "
            "of the cluster file ends it; remove it if the job does not need it",
            "6:1: W206 'creation_policy' is left out: a run never makes a cluster: `gpuctl "
            "up` does; remove it if the job does not need it",
        ],
    ),
    (
        TASK + "stop_duration: off\npriority: 3\nfiles: ['a:b:c']\nrepos: ['.', 'x', 'y:z']\n",
        [
            "4:1: W206 'stop_duration' is left out: a job that is stopped has 10 s to end, "
            "as in dstack; remove it if the job does not need it",
            "5:1: W206 'priority' is left out: a queue has an order and no priorities: "
            "`gpuctl queue move`; remove it if the job does not need it",
            "6:9: E241 'files[0]' is 'a:b:c', which is not LOCAL:REMOTE; write a path, a colon "
            "and a path",
            "7:14: W206 'repos[1]' is left out: a run has one; name its files in 'files'",
            "7:19: W206 'repos[2]' is left out: a run has one; name its files in 'files'",
        ],
    ),
    (
        TASK + "ports: [8000]\ntags: {a: b}\nschedule: {cron: '0 0 * * *'}\n",
        [
            "5:1: W206 'tags' is left out: it belongs to a cluster, and tags of AWS's "
            "resources are in the cluster file; remove it if the job does not need it",
            "6:1: W206 'schedule' is left out: runs start when `gpuctl run` is called: use "
            "cron; remove it if the job does not need it",
        ],
    ),
    (
        TASK + "resources: {gpu: MI300X}\n",
        [
            "4:18: E228 'resources.gpu' asks for MI300X, which AWS does not have; AWS has "
            "A100, H100, H200, B200, B300, T4, A10G, L4, L40S, RTX PRO 4500, RTX PRO "
            "Server 6000",
        ],
    ),
    (
        TASK + "resources: {gpu: amd}\n",
        [
            "4:18: E228 'resources.gpu' asks for amd's accelerators; gpuctl rents NVIDIA's, on AWS",
        ],
    ),
    (
        TASK + "resources: {gpu: {vendor: tpu, count: 4}}\n",
        [
            "4:18: E228 'resources.gpu' asks for tpu's accelerators; gpuctl rents NVIDIA's, on AWS",
        ],
    ),
    (
        TASK + "resources: {gpu: 'H100:many'}\n",
        [
            "4:18: E228 'resources.gpu' asks for many, which AWS does not have; AWS has "
            "A100, H100, H200, B200, B300, T4, A10G, L4, L40S, RTX PRO 4500, RTX PRO "
            "Server 6000",
        ],
    ),
    (
        TASK + "resources: {memory: lots, disk: 1TB}\n",
        [
            "4:21: E203 'resources.memory' is 'lots'; write a size or a range of sizes: "
            "80GB, 40GB..80GB, 40GB.. or ..80GB",
        ],
    ),
    (
        TASK + "resources: {cpu: 'risc:2'}\n",
        [
            "4:18: E203 'resources.cpu' is 'risc:2'; write a number or a range: 8, 2..8, 2.. "
            "or ..8",
        ],
    ),
    (
        TASK + "backends: [gcp]\nregions: [us-east4]\ninstance_types: [n1-standard-4]\n",
        [
            "4:11: E228 'backends' is gcp; gpuctl rents on AWS alone: remove it, or add aws",
            "5:10: E228 'regions' is us-east4, of which AWS has none; gpuctl rents on AWS "
            "alone: remove it, or add AWS's",
            "6:17: E228 'instance_types' is n1-standard-4, of which AWS has none; gpuctl "
            "rents on AWS alone: remove it, or add AWS's",
        ],
    ),
    (
        TASK + "spot_policy: cheap\nmax_price: much\nmax_duration: 3 years\n",
        [
            "4:14: E201 'spot_policy' is 'cheap', which is not allowed; use spot, on-demand "
            "or auto",
            "5:12: E103 'max_price' is 'much', must be a number; write digits, and a point "
            "if need be, such as 12.50",
            "6:15: E203 'max_duration' is '3 years', which is no duration; write a whole "
            "number and a unit: s, m, h, d or w (30m, 1w), or off",
        ],
    ),
    (
        TASK + "startup_order: first\nstop_criteria: done\n",
        [
            "4:16: E201 'startup_order' is 'first', which is not allowed; use any, "
            "master-first or workers-first",
            "5:16: E201 'stop_criteria' is 'done', which is not allowed; did you mean "
            "'all-done'? Allowed: all-done, master-done",
        ],
    ),
    (
        TASK + "volumes: ['data:/data', {name: [a, b], path: /c}]\n",
        [
            "4:11: E228 'volumes[0]' is the network volume data, which is in dstack's "
            "server; write `storage.shared` into the cluster file: all nodes have its folder",
            "4:25: E228 'volumes[1]' is the network volume a, b, which is in dstack's "
            "server; write `storage.shared` into the cluster file: all nodes have its folder",
        ],
    ),
    (
        TASK + "volumes: ['/a:b']\n",
        [
            "4:11: E203 'volumes[0]' is '/a:b'; write a folder of the node and its place in "
            "the container: /data:/data",
        ],
    ),
    (
        TASK + "dstack: true\n",
        [
            "4:9: E228 'dstack' is true; gpuctl has no server that a run could ask",
        ],
    ),
    (
        TASK + "shell: zsh\npython: 2.7\n",
        [
            "4:8: E201 'shell' is 'zsh', which is not allowed; write sh, bash or the shell's "
            "whole path",
            "5:9: E201 'python' is '2.7', which is not allowed; use 3.9, 3.10, 3.11, 3.12, "
            "3.13 or 3.14",
        ],
    ),
    (
        IMAGE + "python: 3.12\nnvcc: true\ndocker: true\n",
        [
            "4:1: E223 'python' and 'image' exclude each other; remove one of them",
            "5:1: E223 'nvcc' and 'image' exclude each other; remove one of them",
            "6:1: E223 'docker' and 'image' exclude each other; remove one of them",
        ],
    ),
    (
        IMAGE + 'entrypoint: "bash \'c"\n',
        [
            "4:13: E203 'entrypoint' is 'bash 'c': No closing quotation; write the words of "
            "one command",
        ],
    ),
    (
        IMAGE + "registry_auth: {username: me}\n",
        [
            "4:16: E102 'registry_auth.password' is missing; add it",
        ],
    ),
    (
        IMAGE + "registry_auth: {username: '${{ secrets.A }}', password: 'x${{ secrets.B }}'}\n",
        [
            "4:27: E228 'registry_auth.username' is a secret, and a user's name is part of "
            "the plan; write the name",
            "4:57: E228 'registry_auth.password' has a secret and more text; write the "
            "secret alone",
        ],
    ),
    (
        "type: task\npython: 3.12\n",
        [
            "1:1: E102 'commands' is missing, and there is no 'image' whose command could "
            "run; add one of them",
        ],
    ),
    (
        TASK.replace("hostname", "'${{ secrets.A }}'") + "python: 3.12\n",
        [
            "3:12: E228 'commands[0]' has ${{ secrets.A }}, which gpuctl cannot replace; "
            "write A=${{ secrets.A }} into `env`, and use its variable",
        ],
    ),
    (
        TASK.replace("hostname", "'${{ run.id }}'") + "python: 3.12\n",
        [
            "3:12: E228 'commands[0]' has ${{ run.id }}, which gpuctl cannot replace; use a "
            "variable of the environment",
        ],
    ),
    (
        TASK + "python: 3.12\nenv: [A=1, A=2, 'B C=1', 'D=${{ env.A }}']\n",
        [
            "5:12: E207 'env[1]' sets A again; keep one of them",
            "5:17: E207 'B C' names no variable; write NAME=value, or NAME for a secret",
            "5:26: E228 'env[3]' has ${{ env.A }}, which gpuctl cannot replace; use ${{ "
            "secrets.NAME }}, or write the text",
        ],
    ),
    (
        TASK + "python: 3.12\nenv: [DSTACK_NODE_RANK=0]\n",
        [
            "5:7: E221 'DSTACK_NODE_RANK' cannot be set in 'env': gpuctl sets it: the node's "
            "place in the run, by dstack's names; remove it, or choose another name",
        ],
    ),
    (
        TASK.replace("name: t", "name: Upper") + "python: 3.12\n",
        [
            "2:7: E203 'name' is 'Upper'; write lower-case letters, digits and hyphens, at "
            "most 41, with a letter first",
        ],
    ),
    (
        TASK + "groups: [{commands: [a]}]\n",
        [
            "3:1: E223 'commands' and 'groups' exclude each other; remove it, or write it "
            "into the groups",
        ],
    ),
    (
        "type: task\ngroups: []\n",
        [
            "2:9: E202 'groups' is empty; write at least one group",
        ],
    ),
    (
        "type: task\ngroups: [{name: X, commands: [a]}, {nodes: 0}, {name: b, count: 2}]\n",
        [
            "2:17: E203 'groups[0].name' is 'X'; write lower-case letters, digits and "
            "hyphens, at most 40",
            "2:36: E102 'groups[1].commands' is missing; add it, or an 'image' for all groups",
            "2:44: E202 'groups[1].nodes' is 0, below 1; use 1 or more",
            "2:48: E102 'groups[2].commands' is missing; add it, or an 'image' for all groups",
            "2:58: W207 unknown key 'groups[2].count': neither dstack nor gpuctl has it; allowed "
            "here: name, nodes, resources, commands, ports",
        ],
    ),
    (
        (
            "type: task\ngroups:\n"
            "  - {commands: ['a ${{ groups[2].nodes[0].IP_ADDRESS }}'], resources: {gpu: H100:8}}\n"
            "  - {commands: [b], resources: {gpu: H200:8}}\n"
        ),
        [
            "3:17: E228 'groups[0].commands[0]' has ${{ groups[2].nodes[0].IP_ADDRESS }}, "
            "which gpuctl cannot replace; there is no such node in `groups`",
            "4:38: E228 'groups[1].resources.gpu' asks for H200, another group for H100; all "
            "nodes of a cluster are of one instance type",
        ],
    ),
    (
        "type: task\nports: [0]\ngroups:\n  - {commands: [a]}\n  - {commands: [b], ports: [1]}\n",
        [
            "2:1: E223 'ports' and 'groups' exclude each other; remove it, or write it into the"
            " groups",
            "5:21: W206 'groups[1].ports' is left out: only node 0's are forwarded; `gpuctl ssh"
            " CLUSTER NODE -- -N -L PORT:localhost:PORT` forwards others",
        ],
    ),
    (
        TASK + "ports: [99999, a, '80:b', '*:0']\nregions: [us-east-1]\n",
        [
            "4:9: E202 'ports[0]' is '99999', which is no port; use 1 to 65535",
            "4:16: E203 'ports[1]' is 'a'; write a port of node 0, or one here and one there: 8000,"
            " 80:8000, *:8000 (any free one)",
            "4:19: E203 'ports[2]' is '80:b'; write a port of node 0, or one here and one there:"
            " 8000, 80:8000, *:8000 (any free one)",
            "4:27: E202 'ports[3]' is '*:0', which is no port; use 1 to 65535",
        ],
    ),
    (
        TASK + "<<: {nodes: 2}\nresources: {<<: {gpu: 8}}\n",
        [
            "4:5: E228 '<<' merges keys, which gpuctl does not; write the keys out",
            "5:17: E228 'resources.<<' merges keys, which gpuctl does not; write the keys out",
        ],
    ),
    (
        "type: service\nport: 80\n",
        [
            "1:7: E229 'type' is service: gpuctl runs dstack's tasks alone; gpuctl serves no "
            "endpoints; write a task that starts the server",
        ],
    ),
    (
        "type: fleet\nnodes: 2\n",
        [
            "1:7: E229 'type' is fleet: gpuctl runs dstack's tasks alone; write a cluster "
            "file for `gpuctl up`: nodes, instance_type, region",
        ],
    ),
    (
        "type: dev-environment\nide: vscode\n",
        [
            "1:7: E229 'type' is dev-environment: gpuctl runs dstack's tasks alone; log in "
            "with `gpuctl ssh CLUSTER NODE`",
        ],
    ),
]
