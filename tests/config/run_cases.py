"""What people read when a run file is wrong: part of the cases of test_complaints.py."""

TASK = "type: task\nname: hello\ncommands: [hostname]\n"
MPI = "type: mpi\nname: hello\ncommands: [hostname]\n"
PS = "type: ps-worker\nname: hello\n"
RAY = "type: ray\nname: hello\ncommands: [hostname]\n"
TORCHRUN = "type: torchrun\nname: hello\ncommands: [hostname]\n"
NCCL = "type: nccl-tests\nname: hello\n"

RUN_CASES: list[tuple[str, list[str]]] = [
    *(
        (
            TASK + f"image: {image}\n",
            [
                f"4:8: E203 'image' is '{shown}'; write an image's name, such as"
                " nvcr.io/nvidia/pytorch:25.09-py3, in lower-case letters"
            ],
        )
        for image, shown in (
            *(("a b", "a b"), ("../../etc/passwd", "../../etc/passwd"), ("-v/:/x", "-v/:/x")),
            *(('"a\\0b"', "a\\x00b"), ("''", ""), ("Debian", "Debian"), ("a/b:-", "a/b:-")),
            *(("a//b", "a//b"), ("a@sha256:0", "a@sha256:0"), ("'a\n\n  b'", "a\\nb")),
        )
    ),
    *(
        (
            TASK + f"image: {image}\n",
            [
                f"4:8: E226 'image' is '{shown}', in which '{part}' is not filled in; write your"
                " own value there"
            ],
        )
        for image, shown, part in (
            (
                "<account>.dkr.ecr.us-east-1.amazonaws.com/train:1",
                "<account>.dkr.ecr.us-east-1.amazonaws.c…",
                "<account>",
            ),
            (
                "ACCOUNT.dkr.ecr.us-east-1.amazonaws.com/train",
                "ACCOUNT.dkr.ecr.us-east-1.amazonaws.com…",
                "ACCOUNT",
            ),
            (
                "123456789012.dkr.ecr.REGION.amazonaws.com/train",
                "123456789012.dkr.ecr.REGION.amazonaws.c…",
                "REGION",
            ),
            ("'{{ .Values.image }}'", "{{ .Values.image }}", "{{ .Values.image }}"),
            ("docker.io/your-account/train", "docker.io/your-account/train", "your-account"),
        )
    ),
    *(
        (TASK + f"image: {image}\n", [])
        for image in (
            "python:3.12",
            "localhost:5000/a/b__c-d.e:Tag_1",
            "123456789012.dkr.ecr.us-gov-west-1.amazonaws.com/team/train:7",
            f"nvcr.io/nvidia/pytorch:25.09-py3@sha256:{'0a' * 32}",
        )
    ),
    (
        TASK + "ready: {max_restarts: 1}\nready_timeout: 5m\nmpirun_args: [-v]\n",
        [
            "4:9: E101 unknown key 'max_restarts'; allowed here: port, command, timeout",
            "5:1: E101 unknown key 'ready_timeout'; it is one of type ddp",
            "6:1: E101 unknown key 'mpirun_args'; it is one of types mpi, nccl-tests",
        ],
    ),
    (
        # Written as a list, read as a mapping: the complaint stands at the list.
        TASK + 'env: ["A=\\0"]\n',
        [
            "4:6: E203 'env.A' is '\\x00'; write text without NUL characters: no program can be"
            " given them"
        ],
    ),
    (
        "type: torchrn\nname: hello\ncommands: [hostname]\nmax_restarts: many\n",
        [
            "1:7: E201 'type' is 'torchrn', which is not allowed; did you mean 'torchrun'? Allowed:"
            " task, mpi, nccl-tests, ddp, torchrun, horovod, deepspeed, ps-worker, ray",
            "4:15: E103 'max_restarts' is the text 'many', must be a whole number; write digits"
            " only, such as 2",
        ],
    ),
    (
        "type: [mpi]\nname: hello\ncommands: [hostname]\n",
        [
            "1:7: E201 'type' is a list, which is not allowed; use task, mpi, nccl-tests, ddp,"
            " torchrun, horovod, deepspeed, ps-worker or ray"
        ],
    ),
    (
        NCCL + "collectives: [allreduce, 3]\n",
        [
            "3:15: E201 'collectives[0]' is 'allreduce', which is not allowed; did you mean"
            " 'all_reduce'? Allowed: all_reduce, all_gather, alltoall, broadcast, gather, reduce,"
            " reduce_scatter, scatter, sendrecv",
            "3:26: E201 'collectives[1]' is the number 3, which is not allowed; use all_reduce,"
            " all_gather, alltoall, broadcast, gather, reduce, reduce_scatter, scatter or"
            " sendrecv",
        ],
    ),
    (
        "name: hello\ncommands: [hostname]\n",
        [
            "1:1: E102 'type' is missing; add it: task, mpi, nccl-tests, ddp, torchrun, horovod,"
            " deepspeed, ps-worker or ray"
        ],
    ),
    (
        MPI + "startup_order: any\nlauncher_as_node: 1\n",
        [
            "4:1: E101 unknown key 'startup_order'; it is one of type task",
            "5:19: E103 'launcher_as_node' is the number 1, must be true or false; write true or"
            " false",
        ],
    ),
    (
        TASK + "max_restarts: 1\nport: 8000\nprocess_per_node: 8\nroles: {master: {port: 1}}\n",
        [
            "4:1: E101 unknown key 'max_restarts'; it is one of type torchrun",
            "5:1: E101 unknown key 'port'; it is one of types ddp, torchrun, deepspeed, ps-worker,"
            " ray",
            "6:1: E101 unknown key 'process_per_node'; allowed here: extends, type, name, nodes,"
            " roles, image, registry_auth, privileged, volumes, env, ports, requires, workdir,"
            " repo, files, code_limit, outputs, network, verify, order, max_duration,"
            " startup_timeout and 11 more",
            "7:18: E101 unknown key 'port'; allowed here: nodes, env, commands",
        ],
    ),
    (
        TASK + "stop_grace: 5\non_notice: {signal: TERM, file: notice, command: '', on: [lease]}\n",
        [
            "4:13: E203 'stop_grace' is the number 5, which is no duration; write a whole number"
            " (at most 6 digits) and a unit: s, m, h or d (30m, 8h)",
            "5:21: E201 'on_notice.signal' is 'TERM', which is not allowed; use USR1 or USR2",
            "5:33: E203 'on_notice.file' is 'notice'; write a file's whole path of"
            " letters, digits, '.', '_' and '-', such as /shared/notice",
            "5:50: E202 'on_notice.command' is empty; write at least one entry or letter",
            "5:54: E101 unknown key 'on'; allowed here: signal, file, command",
        ],
    ),
    (
        TASK + "env: {A: {secret: 1B}, B: {sekret: x}, C: [x], D: {secret: OK}}\n",
        [
            "4:19: E203 'env.A.secret' is ***; write letters, digits and _, with no digit first",
            "4:27: E102 'env.B.secret' is missing; add it: Name of a variable of your"
            " environment, or of a file in `~/.config/gpuctl/secrets/`",
            "4:28: E101 unknown key 'sekret'; did you mean 'secret'?",
            "4:43: E103 'env.C' is a list, must be text; write one text",
        ],
    ),
    (
        TASK + "nodes: 2\nroles:\n  master: {env: {A: true, B: 010}}\n  worker: {env: [A-]}\n",
        [
            "6:21: E103 'roles.master.env.A' is the boolean true, must be text; quote it: 'true'",
            "7:18: E207 roles.worker.env[0]: 'A-' names no variable; use letters, digits and _,"
            " with no digit first",
        ],
    ),
    (
        TASK + "nodes: 2\nroles:\n  boss: {}\n  master: {nodes: 2, node: 1}\n",
        [
            "6:3: E219 type task has no role 'boss'; allowed here: master, worker",
            "7:19: E219 'roles.master.nodes' is 2, but only node 0 is master; remove it",
            "7:22: E101 unknown key 'node'; did you mean 'nodes'?",
        ],
    ),
    (
        TASK + "nodes: 2\nroles: {worker: {nodes: 4}}\n",
        [
            "5:1: E219 the roles have 5 nodes (master 1, worker 4), but 'nodes' is 2; write nodes:"
            " 5, or change the roles"
        ],
    ),
    (
        TASK + "nodes: 4\nroles: {worker: {nodes: 2}}\n",
        [
            "5:1: E219 the roles have 3 nodes (master 1, worker 2), but 'nodes' is 4; write nodes:"
            " 3, or change the roles"
        ],
    ),
    (
        PS,
        [
            "1:1: E102 'commands' is missing: ps and worker have none; add it, or"
            " roles.ps.commands and roles.worker.commands",
            "1:1: E219 a run of type ps-worker has a ps and a worker at least, but 'nodes' is 1;"
            " write nodes: 2 or more",
        ],
    ),
    (
        PS + "nodes: 2\nroles: {ps: {nodes: 2}, worker: {commands: [x]}}\n",
        [
            "1:1: E102 'commands' is missing: ps has none; add it, or roles.ps.commands",
            "4:1: E219 the roles have 3 nodes (ps 2, worker 1), but 'nodes' is 2; write nodes: 3,"
            " or change the roles",
        ],
    ),
    (PS + "nodes: 3\ncommands: [x]\nroles: {ps: {nodes: 2}}\n", []),
    (
        PS + "commands: [x]\nroles: {ps: {nodes: 2}}\n",
        [
            "1:1: E219 a run of type ps-worker has a ps and a worker at least, but 'nodes' is 1;"
            " write nodes: 2 or more"
        ],
    ),
    (
        RAY + "nodes: 3\nroles: {big: {}, small: {}, Odd: {nodes: 1}}\n",
        [
            "5:18: E219 neither 'roles.big' nor 'roles.small' says how many nodes it has; add nodes"
            " to one of them",
            "5:29: E219 'Odd' is no name of a group of workers; write lower-case letters, digits"
            " and hyphens, at most 30, with a letter first",
        ],
    ),
    (
        RAY + "nodes: 8\nroles: {" + ", ".join(f"{g}: {{nodes: 1}}" for g in "abcdef") + "}\n",
        ["5:1: E219 'roles' has 6 groups of workers, more than 5; put some of them together"],
    ),
    (
        RAY + "nodes: 3\nroles: {head: {commands: [x]}, big: {commands: [x]}}\n",
        [
            "5:38: E223 'roles.big.commands' has no effect: the run's commands run on the head,"
            " workers wait for Ray's tasks; remove it"
        ],
    ),
    (RAY + "nodes: 9\nroles: {big: {nodes: 2}, small: {}}\n", []),
    (
        MPI + "nodes: 2\nroles: {launcher: {env: {A: b}}}\n",
        [
            "5:1: E220 'launcher_as_node' is true and 'nodes' is 2, so 'roles' needs launcher and"
            " worker: worker is missing; add worker: {} to it, or write launcher_as_node: false"
        ],
    ),
    (
        MPI + "nodes: 2\nroles: {worker: {env: {A: b}}}\n",
        [
            "5:1: E220 'launcher_as_node' is true and 'nodes' is 2, so 'roles' needs launcher and"
            " worker: launcher is missing; add launcher: {} to it, or write launcher_as_node: false"
        ],
    ),
    (MPI + "nodes: 2\nroles: {launcher: {env: {A: b}}, worker: {}}\n", []),
    (MPI + "nodes: 2\nlauncher_as_node: false\nroles: {worker: {env: {A: b}}}\n", []),
    (
        MPI + "nodes: 2\nlauncher_as_node: false\nroles: {launcher: {commands: [x]}}\n",
        [
            "6:20: E223 'roles.launcher.commands' has no effect: 'launcher_as_node' is false;"
            " remove it"
        ],
    ),
    (
        MPI + "launcher_as_node: false\n",
        [
            "4:19: E220 'launcher_as_node' is false and 'nodes' is 1: no node is left for ranks;"
            " write nodes: 2 or more, or launcher_as_node: true"
        ],
    ),
    (
        TORCHRUN + "env: [A=1, RANK=0]\nroles: {worker: {env: {WORLD_SIZE: 8}}}\n",
        [
            "4:12: E221 'RANK' cannot be set in 'env': torchrun sets it: the RANK's number over all"
            " nodes; remove it, or choose another name",
            "5:24: E221 'WORLD_SIZE' cannot be set in 'roles.worker.env': torchrun sets it: how"
            " many RANKS there are; remove it, or choose another name",
        ],
    ),
    (TASK + "env: {RANK: 0, WORLD_SIZE: 8}\n", []),
    (
        TORCHRUN + "nnodes: 4..2\nnodes: 2\nroles: {worker: {nodes: 1}}\n",
        [
            "4:9: E222 'nnodes' is '4..2', which ends before it begins; write 2..4",
            "5:1: E223 'nodes' and 'nnodes' both say how many nodes; remove one of them",
            "6:18: E223 'roles.worker.nodes' has no effect together with 'nnodes'; remove it",
        ],
    ),
    (TASK + "nodes: {min: 2, max: 4}\n", []),
    (
        TASK + "nodes: {min: 4, max: 2}\n",
        ["4:8: E222 'nodes' goes from 4 to 2, which ends before it begins; write {min: 2, max: 4}"],
    ),
    (
        TASK + "nodes: {min: 0, max: 513}\n",
        [
            "4:14: E202 'nodes.min' is 0, below 1; use 1 to 512",
            "4:22: E202 'nodes.max' is 513, above 512; use 1 to 512",
        ],
    ),
    (
        TASK + "nodes: {min: 1, max: 512}\n",
        [
            "4:14: E202 'nodes' goes from 1 to 512: gpuctl plans every size beforehand, at most 64"
            " below 'max'; write min: 448"
        ],
    ),
    (
        TASK + "nodes: {min: 2, max: 4}\nroles: {worker: {nodes: 3}}\n",
        [
            "5:18: E223 'roles.worker.nodes' has no effect together with a range in 'nodes';"
            " remove it"
        ],
    ),
    (
        "type: nccl-tests\nname: job\nnodes: {min: 2, max: 4}\n",
        [
            "3:8: E247 type nccl-tests takes no range of nodes: its bandwidths are those of one"
            " number of nodes; write one number"
        ],
    ),
    (
        "type: ps-worker\nname: job\ncommands: [x]\nnodes: {min: 2, max: 4}\n",
        [
            "4:8: E247 type ps-worker takes no range of nodes: its commands count on the number of"
            " servers and workers; write one number"
        ],
    ),
    (
        TORCHRUN + "nnodes: 2..600\n",
        ["4:9: E202 'nnodes' ends at 600, above 512; use 1 to 512"],
    ),
    (
        TORCHRUN + "nnodes: 2-4\n",
        ["4:9: E203 'nnodes' is '2-4'; write from how many nodes to how many, such as 2..4"],
    ),
    (
        NCCL + "min_bytes: 1G\nmax_bytes: 1023M\nroles: {worker: {commands: [x]}, launcher: {}}\n",
        [
            "3:12: E222 'min_bytes' is 1G, more than 'max_bytes', which is 1023M; change one of"
            " them",
            "5:18: E223 'roles.worker.commands' has no effect: nccl-tests runs its own programs;"
            " remove it",
        ],
    ),
    (
        TASK.replace("hello", "h" * 41),
        [],
    ),
    (
        TASK.replace("hello", "h" * 42),
        [
            f"2:7: E203 'name' is '{'h' * 39}…'; write lower-case letters, digits and hyphens, at"
            " most 41, with a letter first"
        ],
    ),
    (
        TASK + 'image: "a\\ud800"\n',
        ["4:8: E203 'image' holds half a character (a lone surrogate); remove the escape"],
    ),
    (TASK + "network: tcp\n", []),
    (TASK + "network: none\nverify: warn\n", []),
    (
        TASK + "nodes: 2\nroles: {worker: {nodes: 0}}\n",
        ["5:25: E202 'roles.worker.nodes' is 0, below 1; use 1 to 512"],
    ),
    (TASK + "nodes: 4\nroles: {big: {nodes: 2}, worker: {commands: [w]}}\n", []),
    (
        TASK + "privileged: true\nvolumes: ['/a:/b', data]\nrequires: {gpus: many, memory: 1}\n",
        [
            "4:1: E223 'privileged' has no effect: there is no 'image'; remove it, or write the"
            " image that is pulled",
            "5:1: E223 'volumes' has no effect: there is no 'image'; remove it, or write the image"
            " that is pulled",
            "5:20: E203 'volumes[1]' is 'data'; write a folder of the node and its place in the"
            " container: /data:/data",
            "6:18: E203 'requires.gpus' is 'many'; write a number or a range: 8, 2..8, 2.. or ..8",
            "6:32: E103 'requires.memory' is the number 1, must be text; quote it: '1'",
        ],
    ),
    (NCCL + "min_bytes: 1024K\nmax_bytes: 1M\n", []),
    (NCCL + "min_bytes: 1024M\nmax_bytes: 1G\n", []),
    (NCCL + "min_bytes: 1024\nmax_bytes: 1K\n", []),
    *(
        (
            NCCL + f"min_bytes: {smallest}\nmax_bytes: {largest}\n",
            [
                f"3:12: E222 'min_bytes' is {smallest}, more than 'max_bytes', which is {largest};"
                " change one of them"
            ],
        )
        for smallest, largest in (("1025", "1K"), ("1025K", "1M"), ("1025M", "1G"))
    ),
    (
        NCCL + "max_bytes: 4\nmin_bytes: 8 GB\n",
        [
            "4:12: E203 'min_bytes' is '8 GB'; write bytes, with K, M or G if need be: 8, 64K, 1M,"
            " 8G"
        ],
    ),
    (
        NCCL + "max_bytes: 4\n",
        ["3:12: E222 'min_bytes' is 8, more than 'max_bytes', which is 4; change one of them"],
    ),
    (
        TASK + "network: rdma\nverify: 'off'\n",
        [
            "5:9: E223 'verify' is off, but 'network' is rdma, which fails a run that uses"
            " sockets; remove one of them"
        ],
    ),
    (TASK + "network: rdma\nverify: require\n", []),
    (
        TASK + "registry_auth: {username: me, password: hunter2}\nnetwork: tcp\nverify: require\n",
        [
            "4:1: E223 'registry_auth' has no effect: there is no 'image'; remove it, or write the"
            " image that is pulled",
            "4:41: E103 'registry_auth.password' is ***, must be a mapping; write {secret: NAME}"
            " for the secret of that name",
            "6:9: E223 'verify' is require, but 'network' is tcp, which is no RDMA; remove one of"
            " them",
        ],
    ),
    (
        TASK + "hang: {after: 10, action: kill, kinds: [x]}\n",
        [
            "4:15: E203 'hang.after' is the number 10, which is no duration; write a whole number"
            " (at most 6 digits) and a unit: s, m, h or d (30m, 8h)",
            "4:27: E201 'hang.action' is 'kill', which is not allowed; use report, stop or restart",
            "4:33: E101 unknown key 'kinds'; allowed here: after, action",
        ],
    ),
    (
        TASK + "hang: {action: restart}\n",
        [
            "4:16: E223 'hang.action' is restart, but there is no 'retry'; write how often: retry:"
            " {attempts: 3}"
        ],
    ),
    (
        TASK + "retry: {on: [exit-code]}\nhang: {action: restart}\n",
        ["5:16: E223 'hang.action' is restart, but 'retry.on' lacks no-output; add it there"],
    ),
    (TASK + "retry: {attempts: 2}\nhang: {action: restart}\n", []),
    (
        TASK + "no_output_timeout: 300s\nhang: {}\n",
        [
            "5:1: E223 'hang' has no effect: 'no_output_timeout' ends the run after 300s; write a"
            " longer one than 5m, or remove it"
        ],
    ),
    (TASK + "no_output_timeout: 10m\nhang: {after: 9m}\n", []),
]
