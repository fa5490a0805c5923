"""What people read of values of another shape than is asked for, and at the limits of rules."""

from tests.config.length_cases import CLUSTER
from tests.config.run_cases import MPI, NCCL, PS, RAY, TASK, TORCHRUN

SHAPE_CASES: list[tuple[str, list[str]]] = [
    (
        CLUSTER + "capacity: x\n",
        [
            "4:11: E103 'capacity' is 'x', must be a mapping; write keys below it (type, id,"
            " zones, wait, spare_attempts), or remove it",
        ],
    ),
    (
        CLUSTER + "network: x\n",
        [
            "4:10: E103 'network' is 'x', must be a mapping; write keys below it (cidr, vpc,"
            " subnet, ssh_from, access, interfaces, efa), or remove it",
        ],
    ),
    (
        CLUSTER + "software: x\n",
        [
            "4:11: E103 'software' is 'x', must be a mapping; write keys below it (packages,"
            " driver, efa, nccl, openmpi, nccl_tests), or remove it",
        ],
    ),
    (
        CLUSTER + "budget: x\n",
        [
            "4:9: E103 'budget' is 'x', must be a mapping; write keys below it (max_hourly,"
            " max_total), or remove it",
        ],
    ),
    (
        CLUSTER + "storage: x\n",
        [
            "4:10: E103 'storage' is 'x', must be a mapping; write keys below it (root, shared,"
            " buckets, scratch), or remove it",
        ],
    ),
    (
        CLUSTER + "region: us-east-1\ncapacity: {zones: us-east-1a}\n",
        [
            "5:19: E103 'capacity.zones' is 'us-east-1a', must be a list; write its entries on"
            " separate lines that begin with '- '",
        ],
    ),
    (
        CLUSTER + "region: us-east-1\ncapacity: {zones: [3, x]}\n",
        [
            "5:20: E103 'capacity.zones[0]' is the number 3, must be text; quote it: '3'",
            "5:23: E203 'capacity.zones[1]' is 'x'; write an availability zone such as us-east-1a",
        ],
    ),
    (
        CLUSTER + "region: 5\ncapacity: {zones: [us-east-1a]}\n",
        [
            "4:9: E103 'region' is the number 5, must be text; quote it: '5'",
        ],
    ),
    (
        CLUSTER.replace("p4d.24xlarge", "5"),
        [
            "3:16: E103 'instance_type' is the number 5, must be text; quote it: '5'",
        ],
    ),
    (
        CLUSTER.replace("p4d.24xlarge", "no"),
        [
            "3:16: E104 'instance_type' is a bare no, which YAML readers understand"
            " differently; quote it: 'no'",
        ],
    ),
    (
        CLUSTER + "capacity: {type: spot, id: cr-0123456789abcdef0}\n",
        [
            "4:24: E210 'capacity.id' has no effect: 'capacity.type' is spot; set the type to"
            " reservation or capacity-block, or remove the id",
        ],
    ),
    (
        CLUSTER + "capacity: {type: capacity-block}\n",
        [
            "4:1: E210 'capacity.type' is capacity-block, but 'capacity.id' is missing; write"
            " the reservation's id (cr-…): `gpuctl capacity TYPE` lists yours",
        ],
    ),
    (
        CLUSTER + "capacity: {type: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a]}\n",
        [
            "4:57: E210 'capacity.zones' has no effect: a reservation lies in one zone; remove it",
        ],
    ),
    (
        CLUSTER + "network: {vpc: vpc-0123abcd, cidr: 10.0.0.0/16}\n",
        [
            "4:30: E212 'network.cidr' has no effect: the network exists already; remove it",
        ],
    ),
    (
        CLUSTER + "network: {subnet: subnet-0123abcd, cidr: 10.0.0.0/16}\n",
        [
            "4:36: E212 'network.cidr' has no effect: the network exists already; remove it",
        ],
    ),
    (
        CLUSTER + "network: {access: private, ssh_from: 10.0.0.0/15}\n",
        [
            "4:38: W202 'network.ssh_from' lets 131072 addresses try to ssh in; leave it out"
            " for your own address alone, or write a narrower range",
        ],
    ),
    (
        CLUSTER + "image: stock-debian-12\nsoftware: {openmpi: 4}\n",
        [],
    ),
    (
        CLUSTER + "software: {openmpi: 5, driver: '580'}\n",
        [],
    ),
    (
        CLUSTER.replace("p4d.24xlarge", "m5.large") + "software: {driver: '580'}\n",
        [],
    ),
    (
        CLUSTER.replace("p4d.24xlarge", "trn1.32xlarge")
        + "image: stock-debian-12\nsoftware: {driver: '580'}\n",
        [
            "5:20: E209 'software.driver' has no effect: trn1.32xlarge has no GPU; remove it",
        ],
    ),
    (
        CLUSTER + "budget: {max_hourly: 5}\n",
        [],
    ),
    (
        CLUSTER + "lifetime: {max: 8h}\nbudget: {max_total: 5}\n",
        [],
    ),
    (
        TASK.replace("[hostname]", "[no, -.5, .inf]"),
        [
            "3:12: E104 'commands[0]' is a bare no, which YAML readers understand differently;"
            " quote it: 'no'",
            "3:16: E104 'commands[1]' is a bare -.5, which YAML readers understand differently;"
            " write a plain decimal number, or quote it ('-.5') if text is meant",
            "3:21: E104 'commands[2]' is a bare .inf, which YAML readers understand"
            " differently; write a plain decimal number, or quote it ('.inf') if text is meant",
        ],
    ),
    (
        TASK + "roles: x\n",
        [
            "4:8: E103 'roles' is 'x', must be a mapping; write keys below it (NAME: value), or"
            " remove it",
        ],
    ),
    (
        TASK + "roles: {worker: x}\n",
        [
            "4:17: E103 'roles.worker' is 'x', must be a mapping; write keys below it (nodes,"
            " env, commands), or remove it",
        ],
    ),
    (
        TASK + "env: 5\n",
        [
            "4:6: E103 'env' is the number 5, must be a mapping; write keys below it (NAME:"
            " value), or remove it",
        ],
    ),
    (
        TASK + "env: [5]\n",
        [
            "4:7: E207 env[0]: the entry is not NAME=value; write NAME=value in quotes",
        ],
    ),
    (
        TASK + "nodes: 2\nroles: {worker: {nodes: x}}\n",
        [
            "5:25: E103 'roles.worker.nodes' is the text 'x', must be a whole number; write"
            " digits only, such as 2",
        ],
    ),
    (
        TASK + "nodes: x\nroles: {worker: {nodes: 2}}\n",
        [
            "4:8: E103 'nodes' is the text 'x', must be a whole number; write digits only, such"
            " as 2",
        ],
    ),
    (
        TASK + "nodes: 0\nroles: {worker: {nodes: 2}}\n",
        [
            "4:8: E202 'nodes' is 0, below 1; use 1 to 512",
        ],
    ),
    (
        TORCHRUN + "nnodes: 3\n",
        [
            "4:9: E103 'nnodes' is the number 3, must be text; quote it: '3'",
        ],
    ),
    (
        TORCHRUN + "nnodes: 2..2\n",
        [],
    ),
    (
        TORCHRUN + "nnodes: 2..512\n",
        [],
    ),
    (
        TORCHRUN + "nnodes: 2..513\n",
        [
            "4:9: E202 'nnodes' ends at 513, above 512; use 1 to 512",
        ],
    ),
    (
        NCCL + "min_bytes: {}\n",
        [
            "3:12: E103 'min_bytes' is a mapping, must be text; write one text",
        ],
    ),
    (
        "type: no\nname: x\ncommands: [x]\n",
        [
            "1:7: E201 'type' is 'no', which is not allowed; use task, mpi, nccl-tests, ddp,"
            " torchrun, horovod, deepspeed, ps-worker or ray",
        ],
    ),
    (
        TASK + "nodes: 1\nroles: {worker: {nodes: 1}}\n",
        [
            "5:1: E219 the roles have 2 nodes (master 1, worker 1), but 'nodes' is 1; write"
            " nodes: 2, or change the roles",
        ],
    ),
    (
        TASK + "nodes: 1\nroles: {master: {nodes: 1}}\n",
        [],
    ),
    (
        TASK + "roles: {worker: {nodes: 1}, master: {nodes: 2}}\n",
        [
            "4:45: E219 'roles.master.nodes' is 2, but only node 0 is master; remove it",
        ],
    ),
    (
        PS + "nodes: 1\ncommands: [x]\nroles: {ps: {nodes: 1}, worker: {nodes: 1}}\n",
        [
            "3:8: E219 a run of type ps-worker has a ps and a worker at least, but 'nodes' is"
            " 1; write nodes: 2 or more",
        ],
    ),
    (
        PS + "nodes: 2\ncommands: [x]\n",
        [],
    ),
    (
        PS + "nodes: 4\ncommands: [x]\nroles: {ps: {nodes: 2}, worker: {nodes: 1}}\n",
        [
            "5:1: E219 the roles have 3 nodes (ps 2, worker 1), but 'nodes' is 4; write nodes:"
            " 3, or change the roles",
        ],
    ),
    (
        PS + "nodes: 4\ncommands: [x]\nroles: {ps: {nodes: 4}}\n",
        [
            "5:1: E219 the roles have 5 nodes (ps 4, worker 1), but 'nodes' is 4; write nodes:"
            " 5, or change the roles",
        ],
    ),
    (
        PS + "nodes: 2\nroles: {ps: {commands: [x]}}\n",
        [
            "1:1: E102 'commands' is missing: worker has none; add it, or roles.worker.commands",
        ],
    ),
    (
        MPI + "nodes: 1\nroles: {worker: {}}\n",
        [],
    ),
    (
        MPI + "nodes: 2\nroles: {}\n",
        [],
    ),
    (
        MPI + "nodes: 1\nlauncher_as_node: false\nroles: {launcher: {commands: [x]}}\n",
        [
            "5:19: E220 'launcher_as_node' is false and 'nodes' is 1: no node is left for"
            " ranks; write nodes: 2 or more, or launcher_as_node: true",
            "6:20: E223 'roles.launcher.commands' has no effect: 'launcher_as_node' is false;"
            " remove it",
        ],
    ),
    (
        RAY + "nodes: 6\nroles: {" + ", ".join(f"{g}: {{nodes: 1}}" for g in "abcde") + "}\n",
        [],
    ),
    (
        RAY + "nodes: 4\nroles: {a: {}, b: {}, c: {}}\n",
        [
            "5:16: E219 neither 'roles.a' nor 'roles.b' says how many nodes it has; add nodes"
            " to one of them",
            "5:23: E219 neither 'roles.a' nor 'roles.c' says how many nodes it has; add nodes"
            " to one of them",
        ],
    ),
    (
        RAY + "nodes: 2\nroles: {head: {nodes: 1}, a: {nodes: 1}}\n",
        [],
    ),
    (
        RAY + "nodes: 2\nroles: {head: {nodes: 2}}\n",
        [
            "5:23: E219 'roles.head.nodes' is 2, but only node 0 is head; remove it",
        ],
    ),
    (
        TASK + "network: tcp\nverify: require\n",
        [
            "5:9: E223 'verify' is require, but 'network' is tcp, which is no RDMA; remove one"
            " of them",
        ],
    ),
    (
        TASK + "network: none\nverify: require\n",
        [
            "5:9: E223 'verify' is require, but 'network' is none, which is no RDMA; remove one"
            " of them",
        ],
    ),
    (
        TASK + "network: efa\nverify: require\n",
        [],
    ),
    (
        TASK + "image: x\nregistry_auth: {username: me, password: {secret: P}}\n",
        [],
    ),
]
