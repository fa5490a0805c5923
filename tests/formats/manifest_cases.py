"""What people read when a manifest is wrong: the cases of test_manifests.py."""

from tests.formats.manifest_texts import LAUNCHER_AT, MPIJOB, TRAINJOB, VOLCANO, WORKER_AT

RUNS = (
    "it runs MPIJob of kubeflow.org/v2beta1, TrainJob of trainer.kubeflow.org/v1alpha1 and Job of"
    " batch.volcano.sh/v1alpha1"
)
KEPT = "see that the job does not need it, or remove it"

TRAINERS_OF_TORCH = (
    *("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
)
TRAINERS_OF_MPI = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)

MANIFEST_CASES: list[tuple[str, list[str]]] = [
    (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: x}\n",
        [
            "1:13: E224 no manifest that gpuctl runs: apiVersion is 'kubeflow.org/v1', kind is"
            f" 'PyTorchJob'; {RUNS}"
        ],
    ),
    (
        "apiVersion: 1\nspec: {}\n",
        [
            "1:13: E224 no manifest that gpuctl runs: apiVersion is the number 1, kind is empty;"
            f" {RUNS}"
        ],
    ),
    (
        "apiVersion: {}\nkind: MPIJob\n",
        [
            "1:13: E224 no manifest that gpuctl runs: apiVersion is a mapping, kind is 'MPIJob';"
            f" {RUNS}"
        ],
    ),
    (
        "apiVersion: kubeflow.org/v2beta1\nkind: {}\n",
        [
            "1:13: E224 no manifest that gpuctl runs: apiVersion is 'kubeflow.org/v2beta1', kind is"
            f" a mapping; {RUNS}"
        ],
    ),
    (
        MPIJOB.replace("name: pi", "name: My_Job"),
        [
            "3:18: E203 'metadata.name' is 'My_Job', which no run can be called; write lower-case"
            " letters, digits and hyphens, at most 41, with a letter first"
        ],
    ),
    (
        MPIJOB.replace("{name: pi}", "{}"),
        ["3:11: E102 'metadata.name' is missing; add it"],
    ),
    (
        MPIJOB.replace(
            "spec:\n  mpi",
            "spec:\n  slotsPerWorker: 0\n  mpiImplementation: OpenMpi\n"
            "  runLauncherAsWorker: 1\n  mpi",
        ),
        [
            "5:19: E202 'spec.slotsPerWorker' is 0, below 1; use 1 or more",
            "6:22: E201 'spec.mpiImplementation' is 'OpenMpi', which is not allowed; did you mean"
            " 'OpenMPI'? Allowed: OpenMPI, Intel, MPICH",
            "7:24: E103 'spec.runLauncherAsWorker' is the number 1, must be true or false; write"
            " true or false",
        ],
    ),
    (
        MPIJOB.replace("      replicas: 2\n", "").replace(
            "Launcher:\n", "Launcher:\n      replicas: 2\n"
        ),
        [
            "7:17: E202 'spec.mpiReplicaSpecs.Launcher.replicas' is 2; write 1: a job has one"
            " launcher",
            "13:7: E102 'spec.mpiReplicaSpecs.Worker.replicas' is missing; add it",
        ],
    ),
    (
        MPIJOB.replace("replicas: 2", "replicas: 600"),
        ["12:17: E202 'spec.mpiReplicaSpecs.Worker.replicas' is 600, above 512; use 1 to 512"],
    ),
    (
        MPIJOB.replace("[mpirun, ./pi]", "[mpirun, -n, 2]\n              workingDir: no"),
        [
            f"10:37: E103 '{LAUNCHER_AT}.containers[0].command[2]' is the number 2, must be text;"
            " quote it: '2'",
            f"11:27: E104 '{LAUNCHER_AT}.containers[0].workingDir' is a bare no, which YAML"
            " readers understand differently; quote it: 'no'",
        ],
    ),
    (MPIJOB.replace("command: [mpirun, ./pi]", "image: mpi"), []),
    (
        MPIJOB.replace("command: [mpirun, ./pi]", "name: x"),
        [
            f"10:15: E102 '{LAUNCHER_AT}.containers[0].command' is missing, and there is no image;"
            " add the command"
        ],
    ),
    (
        MPIJOB.replace(
            "command: [mpirun, ./pi]", "args: [mpirun, ./pi]\n              image: other"
        ),
        [
            f"11:15: W204 '{LAUNCHER_AT}.containers[0].image' is ignored: a run has one image,"
            f" and ranks run in the workers' (mpi); {KEPT}",
        ],
    ),
    (
        MPIJOB.replace("- image: mpi", "- command: [./serve]"),
        [
            f"16:15: W204 '{WORKER_AT}.containers[0].command' is ignored: on workers only what"
            f" mpirun starts is run; {KEPT}"
        ],
    ),
    (
        MPIJOB.replace(
            "          containers:\n            - image",
            "          initContainers: [{image: x}]\n          tolerations: []\n"
            "          containers:\n            - {image: y}\n            - image",
        ),
        [
            "15:28: E225 init container '0' has the image x, and a run has one: the job's is y;"
            " give both one image, or do that in `setup.commands` of the cluster file",
            f"16:11: W204 '{WORKER_AT}.tolerations' is ignored: the run takes nodes of its"
            f" cluster, next to each other; {KEPT}",
            f"19:15: E225 '{WORKER_AT}.containers[1]' cannot be carried out: there is no"
            " Kubernetes here; keep the one that does the work: a node runs one",
        ],
    ),
    (
        MPIJOB
        + "              envFrom: [{secretRef: {name: all}}]\n              env:\n"
        + "                - {name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}\n"
        + "                - {value: x}\n                - {name: B, value: 1}\n"
        + "                - {name: S, valueFrom: {secretKeyRef: {name: a, key: b}}}\n"
        + '                - {name: C, value: "user:$(S)"}\n',
        [
            f"17:15: E225 '{WORKER_AT}.containers[0].envFrom' cannot be carried out: there is no"
            " Kubernetes here; write its variables in 'env'",
            f"19:29: E225 '{WORKER_AT}.containers[0].env[0].valueFrom' cannot be carried out:"
            " there is no Kubernetes here; write its value, or take a secret (secretKeyRef)",
            f"20:19: E102 '{WORKER_AT}.containers[0].env[1].name' is missing; name the variable",
            f"21:36: E103 '{WORKER_AT}.containers[0].env[2].value' is the number 1, must be text;"
            " quote it: '1'",
            f"23:36: E225 '{WORKER_AT}.containers[0].env[4].value' has the secret S in it; put"
            " them together in the command: it has both",
        ],
    ),
    (
        MPIJOB + "              env: [{name: GPUCTL_X, value: x}, {name: a-b, value: y}]\n",
        [
            f"17:21: E221 'GPUCTL_X' cannot be set in '{WORKER_AT}.containers[0].env': gpuctl sets"
            " it: the node's place in the run; remove it, or choose another name",
            "17:49: E207 the key 'a-b' names no variable; use letters, digits and _, with no"
            " digit first",
        ],
    ),
    (
        MPIJOB.replace(
            "spec:\n  mpi", "spec:\n  runPolicy: {backoffLimit: 6}\n  colour: red\n  mpi"
        )
        + "extends: hello\n",
        [
            "5:15: W204 'spec.runPolicy.backoffLimit' is ignored: a run that fails is not started"
            f" again by itself; {KEPT}",
            "6:3: E101 unknown key 'colour' in 'spec'; allowed here: cleanPodPolicy,"
            " launcherCreationPolicy, mpiImplementation, mpiReplicaSpecs and 4 more",
            "19:1: E101 unknown key 'extends'; allowed here: apiVersion, kind, metadata, spec,"
            " status",
        ],
    ),
    (
        TRAINJOB.replace("torch-distributed", "torch-distribute"),
        [
            "5:22: E201 'spec.runtimeRef.name' is 'torch-distribute': there is no such runtime in"
            " the file, in --runtimes, or among Kubeflow's own; did you mean 'torch-distributed'?"
        ],
    ),
    (
        TRAINJOB.replace("runtimeRef: {name: torch-distributed}", "initializer: {model: {}}"),
        [
            "5:3: E102 'spec.runtimeRef.name' is missing; add it",
            "5:3: E225 'spec.initializer' cannot be carried out: nothing runs before the job;"
            " bring data and models onto the nodes (`setup.commands` of the cluster file)",
        ],
    ),
    (
        TRAINJOB + "    env: [{name: PET_NNODES, value: '3'}]\n    numProcPerNode: many\n",
        [
            "8:11: E221 'PET_NNODES' cannot be set in 'spec.trainer.env': Trainer sets it; remove"
            " it, or choose another name",
            "9:21: E103 'spec.trainer.numProcPerNode' is 'many', must be a whole number; write"
            " digits only, such as 2",
        ],
    ),
    (
        VOLCANO.replace("spec:\n  tasks", "spec:\n  plugins: {pytorh: []}\n  tasks"),
        [
            "5:13: E225 plugin 'pytorh' cannot be carried out; did you mean 'pytorch'?",
        ],
    ),
    (
        VOLCANO.replace("sshd, -D", "./serve").replace(
            "- name: one", "- name: one\n      replicas: 2"
        ),
        [
            "6:7: E225 no task is there once: one has 2 replicas; write replicas: 1 for the master",
        ],
    ),
    (
        VOLCANO.replace("sshd, -D", "./serve").replace(
            "- name: two",
            "- name: two\n      policies: [{event: TaskCompleted, action: CompleteJob}]",
        ),
        [
            "9:7: E225 task two completes the job, while one may run on; write a run file of"
            " `type: ps-worker`, whose servers end with the workers"
        ],
    ),
    (
        VOLCANO.replace("name: two", "name: Two").replace("  tasks:", "  tasks: &tasks"),
        ["8:13: E203 'spec.tasks[1].name' is 'Two'; write lower-case letters, digits and hyphens"],
    ),
    (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: x}\nspec: {tasks: 3}\n",
        [
            "4:15: E103 'spec.tasks' is the number 3, must be a list; write its entries on"
            " separate lines that begin with '- '",
            "4:15: E225 'spec.tasks' has 0 tasks; write one, or a master and workers that it"
            " enters by mpirun",
        ],
    ),
    (MPIJOB + "status: {}\n", []),
    (
        MPIJOB + "              env: [{name: A, value: x, colour: red}]\n",
        [
            f"17:41: E101 unknown key 'colour' in '{WORKER_AT}.containers[0].env[0]'; allowed here:"
            " name, value, valueFrom"
        ],
    ),
    *(
        (
            TRAINJOB.replace("torch-distributed", runtime)
            + f"    env: [{{name: {name}, value: x}}]\n",
            [
                f"8:11: E221 '{name}' cannot be set in 'spec.trainer.env': Trainer sets it; remove"
                " it, or choose another name"
            ],
        )
        for runtime, names in (
            ("torch-distributed", TRAINERS_OF_TORCH),
            ("mpi-distributed", TRAINERS_OF_MPI),
        )
        for name in names
    ),
    (
        TRAINJOB.replace("torch-distributed", "jax-distributed")
        + "    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}\n    colour: red\n"
        "  podTemplateOverrides: []\n",
        [
            "8:5: W204 'spec.trainer.resourcesPerNode' is ignored: a run has the whole of its"
            f" nodes; {KEPT}",
            "9:5: E101 unknown key 'colour' in 'spec.trainer'; allowed here: args, command, env,"
            " image, numNodes, numProcPerNode, resourcesPerNode",
            "10:3: W204 'spec.podTemplateOverrides' is ignored: there is nothing like it here;"
            f" {KEPT}",
        ],
    ),
    (
        # By a GPU runtime's launcher ranks are counted by it.
        TRAINJOB.replace("torch-distributed", "mpi-distributed")
        + "    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}\n    colour: red\n",
        [
            "9:5: E101 unknown key 'colour' in 'spec.trainer'; allowed here: args, command, env,"
            " image, numNodes, numProcPerNode, resourcesPerNode"
        ],
    ),
    (
        VOLCANO.replace("spec:\n  tasks", "spec:\n  maxRetry: 3\n  volumes: [{}]\n  tasks").replace(
            "- name: two", "- name: two\n      maxRetry: 1\n      topologyPolicy: none"
        ),
        [
            "5:3: W204 'spec.maxRetry' is ignored: a run that fails is not started again by itself;"
            f" {KEPT}",
            "6:3: W204 'spec.volumes' is ignored: nodes have the cluster's file systems, in"
            f" containers too; {KEPT}",
            "11:7: W204 'spec.tasks[1].maxRetry' is ignored: a run that fails is not started again"
            f" by itself; {KEPT}",
            "12:7: W204 'spec.tasks[1].topologyPolicy' is ignored: there is nothing like it here;"
            f" {KEPT}",
        ],
    ),
    (
        VOLCANO.replace(
            "spec:\n  tasks",
            "spec:\n  policies: [{action: CompleteJob}, {event: PodEvicted, action: RestartJob}]\n"
            "  tasks",
        ).replace("- name: two", "- name: two\n      policies: [{action: RestartTask}]"),
        [
            "5:57: W204 'spec.policies[1].action' is ignored: the run ends when a node fails or the"
            f" job is done; {KEPT}",
            "10:19: W204 'spec.tasks[1].policies[0].action' is ignored: the run ends when a node"
            f" fails or the job is done; {KEPT}",
        ],
    ),
    (
        VOLCANO.replace("spec:\n  tasks", "spec:\n  plugins: [svc]\n  tasks"),
        [
            "5:12: E103 'spec.plugins' is a list, must be a mapping; write keys below it",
        ],
    ),
    (
        TRAINJOB.replace("  trainer:\n    command: [train]\n", "  trainer: train\n"),
        [
            "6:12: E103 'spec.trainer' is 'train', must be a mapping; write keys below it",
        ],
    ),
]

_REASONS = {
    "nodes have the cluster's file systems, in containers too": {"volumes": "[]"},
    "the run takes nodes of its cluster, next to each other": {
        **{"nodeSelector": "{a: b}", "affinity": "{}", "tolerations": "[]", "nodeName": "x"},
        "topologySpreadConstraints": "[]",
    },
    "commands run as root, with all devices of the node": {"securityContext": "{}"},
    "the image is pulled without credentials": {"imagePullSecrets": "[{name: x}]"},
}
_POD = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  runPolicy: {colour: red}
  mpiReplicaSpecs:
    Worker: {replicas: 1, colour: red, template: {spec: {containers: [{image: mpi}]}}}
    Launcher:
      colour: red
      template:
        colour: red
        spec:
          containers: [{command: [x], volumeMounts: [{}], resources: {}, colour: red}]
"""
MANIFEST_CASES += [
    (
        _POD
        + "".join(
            f"          {key}: {v}\n" for keys in _REASONS.values() for key, v in keys.items()
        ),
        [
            "5:15: E101 unknown key 'colour' in 'spec.runPolicy'; allowed here:"
            " activeDeadlineSeconds, backoffLimit, cleanPodPolicy, managedBy,"
            " schedulingPolicy and 2 more",
            "7:27: E101 unknown key 'colour' in 'spec.mpiReplicaSpecs.Worker'; allowed here:"
            " replicas, restartPolicy, template",
            "9:7: E101 unknown key 'colour' in 'spec.mpiReplicaSpecs.Launcher'; allowed here:"
            " replicas, restartPolicy, template",
            "11:9: E101 unknown key 'colour' in 'spec.mpiReplicaSpecs.Launcher.template'; allowed"
            " here: metadata, spec",
            f"13:39: W204 '{LAUNCHER_AT}.containers[0].volumeMounts' is ignored: nodes have the"
            f" cluster's file systems, in containers too; {KEPT}",
            f"13:59: W204 '{LAUNCHER_AT}.containers[0].resources' is ignored: a run has the whole"
            f" of its nodes; {KEPT}",
            f"13:74: E101 unknown key 'colour' in '{LAUNCHER_AT}.containers[0]'; allowed here:"
            " args, command, env, envFrom, image, imagePullPolicy, lifecycle, livenessProbe and 17"
            " more",
            *(
                f"{line}:11: W204 '{LAUNCHER_AT}.{key}' is ignored: {why}; {KEPT}"
                for line, (why, key) in enumerate(
                    [(why, key) for why, keys in _REASONS.items() for key in keys], 14
                )
            ),
        ],
    ),
    (
        MPIJOB.replace("Launcher", "Launched"),
        [
            "6:5: E101 unknown key 'Launched' in 'spec.mpiReplicaSpecs'; did you mean 'Launcher'?",
            "6:5: E102 'spec.mpiReplicaSpecs.Launcher' is missing; add it",
            f"6:5: E102 '{LAUNCHER_AT}.containers[0].command' is missing, and there is no image;"
            " add the command",
        ],
    ),
    *(
        (
            TRAINJOB + f"  {key}: {{}}\n",
            [
                f"8:3: E225 'spec.{key}' cannot be carried out: nothing runs before the job; bring"
                " data and models onto the nodes (`setup.commands` of the cluster file)"
            ],
        )
        for key in ("initializer", "datasetConfig", "modelConfig")
    ),
]

NEAR_MISSES = [
    (
        MPIJOB + "          imagePullPolicy: Always\n",
        f"17:11: E101 unknown key 'imagePullPolicy' in '{WORKER_AT}'; write it in an entry of"
        " 'containers'",
    ),
    (
        MPIJOB.replace("Worker:", "Workers:"),
        "11:5: E101 unknown key 'Workers' in 'spec.mpiReplicaSpecs'; did you mean 'Worker'?",
    ),
    (
        MPIJOB.replace("Worker:", "worker:"),
        "11:5: E101 unknown key 'worker' in 'spec.mpiReplicaSpecs'; did you mean 'Worker'?",
    ),
    (
        MPIJOB.replace("mpiReplicaSpecs", "mpiReplicaSpec"),
        "5:3: E101 unknown key 'mpiReplicaSpec' in 'spec'; did you mean 'mpiReplicaSpecs'?",
    ),
    (
        MPIJOB.replace("spec:\n  mpi", "spec:\n  slotPerWorker: 8\n  mpi"),
        "5:3: E101 unknown key 'slotPerWorker' in 'spec'; did you mean 'slotsPerWorker'?",
    ),
    (
        MPIJOB.replace("image: mpi", "image: mpi\n              resource: {}"),
        f"17:15: E101 unknown key 'resource' in '{WORKER_AT}.containers[0]'; did you mean"
        " 'resources'?",
    ),
    (
        MPIJOB.replace("replicas: 2", "replicas: '2'"),
        "12:17: E103 'spec.mpiReplicaSpecs.Worker.replicas' is '2', must be a whole number; write"
        " digits only, such as 2",
    ),
    (
        MPIJOB.replace("image: mpi", "image: mpi\n              resources: {limit: {a: 1}}"),
        f"17:27: E101 unknown key 'limit' in '{WORKER_AT}.containers[0].resources'; did you mean"
        " 'limits'?",
    ),
    (
        TRAINJOB + "    numNode: 4\n",
        "8:5: E101 unknown key 'numNode' in 'spec.trainer'; did you mean 'numNodes'?",
    ),
    (
        TRAINJOB + "  trainers: {numNodes: 4}\n",
        "8:3: E101 unknown key 'trainers' in 'spec'; did you mean 'trainer'?",
    ),
    (
        VOLCANO.replace("replicas: 2", "replica: 2"),
        "9:7: E101 unknown key 'replica' in 'spec.tasks[1]'; did you mean 'replicas'?",
    ),
    (
        VOLCANO.replace("tasks:", "task:"),
        "5:3: E101 unknown key 'task' in 'spec'; did you mean 'tasks'?",
    ),
    (
        MPIJOB.replace(
            "spec:\n  mpi", "spec:\n  runPolicy: {activeDeadlineSeconds: 99999999}\n  mpi"
        ),
        "5:38: E202 'spec.runPolicy.activeDeadlineSeconds' is 99999999, above 59999940; use 1 to"
        " 59999940",
    ),
    (
        MPIJOB.replace("image: mpi", "image: <account>.dkr.ecr.us-east-1.amazonaws.com/mpi"),
        f"16:22: E226 '{WORKER_AT}.containers[0].image' is"
        " '<account>.dkr.ecr.us-east-1.amazonaws.c…', in which '<account>' is not filled in; write"
        " your own value there",
    ),
    (
        MPIJOB.replace("image: mpi", "image: rocm/mpi:7.1"),
        f"16:22: E225 '{WORKER_AT}.containers[0].image' is rocm/mpi:7.1, which is made for"
        " accelerators that AWS's NVIDIA nodes do not have; take an image with CUDA",
    ),
    (
        TRAINJOB + "    resourcesPerNode: {limits: {amd.com/gpu: 8}}\n",
        "8:33: E225 'spec.trainer.resourcesPerNode.limits.amd.com/gpu' is not what AWS's NVIDIA"
        " nodes have; ask for nvidia.com/gpu, with an image for CUDA",
    ),
    (
        TRAINJOB + "    image: My Image\n",
        "8:12: E203 'spec.trainer.image' is 'My Image'; write an image's name, such as"
        " nvcr.io/nvidia/pytorch:25.09-py3, in lower-case letters",
    ),
    (
        MPIJOB.replace("[mpirun, ./pi]", '[/bin/bash, -ec, "mpirun x && echo \'a"]'),
        f"10:42: E248 '{LAUNCHER_AT}.containers[0].command[2]' has no ' that closes; close it in"
        " the same entry, which bash reads by itself (`- |` for several lines)",
    ),
    (
        TRAINJOB.replace(
            "[train]", "[sh, -c]\n    args:\n      - |\n        cat <<EOF\n        a\n"
        ),
        "10:9: E248 'spec.trainer.args[0]' has a here-document without its end: no line is EOF"
        " alone; write EOF alone on a line of the same entry (`- |` for several lines)",
    ),
    (
        VOLCANO.replace("[mpirun, x]", "[bash, -x, -c, 'ls; [[ ]]', x]"),
        "7:64: E248 'spec.tasks[0].template.spec.containers[0].command[3]' has a [[ … ]] in which"
        " an operand is missing: bash ends there, with 0; write what is tested, in quotes if it may"
        ' be empty: `[[ -n "$NAME" ]]`',
    ),
]
"""Typing mistakes, each with a line that must be among those about it."""
