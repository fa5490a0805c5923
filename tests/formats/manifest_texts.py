"""The shortest manifests, and those that have every key that is known."""

MPIJOB = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - command: [mpirun, ./pi]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - image: mpi
"""
LAUNCHER_AT = "spec.mpiReplicaSpecs.Launcher.template.spec"
WORKER_AT = "spec.mpiReplicaSpecs.Worker.template.spec"
TRAINJOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    command: [train]
"""
VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: hello}
spec:
  tasks:
    - name: one
      template: {spec: {containers: [{command: [mpirun, x]}]}}
    - name: two
      replicas: 2
      template: {spec: {containers: [{command: [sshd, -D]}]}}
"""
MPIJOB_OF_A_LAUNCHER = MPIJOB[: MPIJOB.index("    Worker:")]
ALL_KEYS_OF_MPIJOB = MPIJOB.replace(
    "spec:\n  mpi",
    "spec:\n  cleanPodPolicy: None\n  slotsPerWorker: 2\n"
    "  runLauncherAsWorker: false\n  mpiImplementation: OpenMPI\n"
    "  sshAuthMountPath: /root/.ssh\n  launcherCreationPolicy: AtStartup\n"
    "  runPolicy: {activeDeadlineSeconds: 60, backoffLimit: 0, cleanPodPolicy: None,"
    " managedBy: x, schedulingPolicy: {}, suspend: false, ttlSecondsAfterFinished: 1}\n  mpi",
).replace("      template:", "      restartPolicy: Never\n      template:")
ALL_KEYS_OF_A_POD = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        metadata: {}
        spec:
          initContainers: []
          restartPolicy: Never
          terminationGracePeriodSeconds: 3
          hostNetwork: true
          hostIPC: true
          hostPID: true
          hostname: x
          subdomain: x
          dnsPolicy: x
          schedulerName: x
          automountServiceAccountToken: true
          enableServiceLinks: true
          containers:
            - name: x
              image: x
              command: [x]
              args: [x]
              env: []
              workingDir: /
              envFrom: []
              imagePullPolicy: Always
              ports: []
              stdin: true
              tty: true
              livenessProbe: {}
              readinessProbe: {}
              startupProbe: {}
              terminationMessagePath: x
              terminationMessagePolicy: x
"""
ALL_KEYS_OF_TRAINJOB = (
    TRAINJOB + "    image: mine\n    args: [x]\n    env: []\n    numNodes: 2\n"
    "    numProcPerNode: 1\n  activeDeadlineSeconds: 60\n  labels: {a: b}\n"
    "  annotations: {a: b}\n  managedBy: x\n  suspend: false\n"
)
ALL_KEYS_OF_VOLCANO = VOLCANO.replace(
    "spec:\n  tasks",
    "spec:\n  plugins: {svc: [], ssh: [], env: [], mpi: []}\n  maxRetry: 0\n"
    "  policies: [{action: AbortJob}, {action: TerminateJob}]\n  minAvailable: 3\n"
    "  minSuccess: 1\n  schedulerName: volcano\n  queue: q\n  ttlSecondsAfterFinished: 1\n  tasks",
).replace(
    "- name: two",
    "- name: two\n      minAvailable: 2\n      maxRetry: 0\n      dependsOn: {name: [one]}\n"
    "      policies: []",
)
