"""Init containers of manifests: which become the job's first commands, and which are refused."""

import subprocess
from pathlib import Path

import pytest

from config.run.env import Secret
from engine.plan.script import job_script
from tests.formats.manifest_texts import LAUNCHER_AT, MPIJOB, VOLCANO
from tests.formats.test_manifest_files import OF_MINE, RUNTIME, lines, run_of

NODES = "or do that in `setup.commands` of the cluster file"
PREPARED = '"$GPUCTL_RUN_FOLDER/prepared.$GPUCTL_RESTART_COUNT"'


def with_init(*containers: str, text: str = MPIJOB, count: int = 1) -> str:
    listed = f"          initContainers: [{', '.join(containers)}]\n"
    return text.replace("          containers:\n", f"{listed}          containers:\n", count)


def on_worker(*containers: str) -> str:
    launcher, worker = MPIJOB.split("    Worker:")
    return f"{launcher}    Worker:{with_init(*containers, text=worker)}"


def executed(folder: Path, *commands: str, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash"],
        input=job_script(commands),
        env={"PATH": "/usr/bin:/bin", "GPUCTL_RESTART_COUNT": "0", **env},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "[sh, -c, 'until nslookup pi-worker-0; do echo waiting; sleep 2; done']",
        "[sleep, '10']",
        "[bash, -ec, 'for i in 0 1; do while ! nc -z w-$i 22; do sleep 1; done; done']",
        "[sh, -c, 'until timeout 2 nc -vz redis 6379 >/dev/null 2>&1; do sleep 2; done']",
        "[sh, -c, 'while true; do getent hosts w-0 && break; i=$((i+1)); sleep 1; done']",
        "[sh, -c, 'until [ \"$(getent hosts w | wc -l)\" -ge 2 ]; do sleep 1; done']",
        "[sh, -c, 'until wget -q -O /dev/null http://svc/health; do sleep 2; done']",
        "[sh, -c, 'until (curl -sf http://svc:80/ready); do sleep 2; done']",
        "[kubectl, -n, a, wait, --for=condition=Ready, pod, -l, app=x]",
        "[sh, -c, 'kubectl rollout status deploy/x --timeout=600s']",
    ],
)
def test_an_init_container_that_only_waits_is_left_out(tmp_path: Path, words: str) -> None:
    (line,) = lines(tmp_path, with_init(f"{{image: busybox, command: {words}}}"))
    assert "W204" in line
    assert "initContainers[0]' is ignored: a run starts when its nodes are ready" in line


@pytest.mark.parametrize(
    "words",
    [
        "[sh, -c, 'until curl -sf http://svc/model -o /models/m; do sleep 2; done']",
        "[sh, -c, 'until wget -O model http://svc/model; do sleep 2; done']",
        "[sh, -c, 'curl -sf http://svc/register']",
        "[sh, -c, 'kubectl delete pod x && kubectl wait --for=delete pod/x']",
        "[sh, -c, 'until nslookup w; do sleep 1; done; $INSTALL']",
    ],
)
def test_an_init_container_that_does_more_than_wait_is_refused_in_another_image(
    tmp_path: Path, words: str
) -> None:
    (line,) = lines(tmp_path, with_init(f"{{name: i, image: curl, command: {words}}}"))
    assert "E225 init container 'i' has the image curl, and a run has one: the job's is mpi" in line


def test_init_containers_run_in_order_each_with_its_variables_and_folder(tmp_path: Path) -> None:
    first = (
        "{name: a, image: mpi, workingDir: sub, command: [sh, -c],"
        ' args: [\'echo "$PWD $A $(B)"\'], env: [{name: A, value: "it\'s"}, {name: B, value: b}]}'
    )
    second = "{name: b, image: mpi, command: [sh, -c, 'echo ${A:-none} > $PWD/made; cat made']}"
    run = run_of(tmp_path, with_init(first, second))
    (tmp_path / "sub").mkdir()
    *_, one, two, main = run.commands
    assert main == "mpirun ./pi"
    code, output, errors = executed(tmp_path, one, two, 'echo "$PWD ${A:-none}"')
    assert (code, errors) == (0, "")
    assert output.splitlines() == [
        f"{tmp_path}/sub it's b",
        "none",
        f"{tmp_path} none",
    ]


def test_a_job_ends_with_the_exit_code_of_its_init_container(tmp_path: Path) -> None:
    container = "{name: load data, image: mpi, command: [sh, -c, 'echo no bucket >&2; exit 3']}"
    run = run_of(tmp_path, with_init(container))
    code, output, errors = executed(tmp_path, run.commands[-2], "echo main")
    assert (code, output) == (3, "")
    assert errors == "no bucket\ngpuctl: init container load data ended with exit code 3\n"


def test_a_folder_that_is_missing_fails_the_init_container(tmp_path: Path) -> None:
    container = "{name: x, image: mpi, workingDir: missing, command: [echo, ran]}"
    run = run_of(tmp_path, with_init(container))
    code, output, errors = executed(tmp_path, run.commands[-2])
    assert (code, output) == (1, "")
    assert errors.endswith("gpuctl: init container x ended with exit code 1\n")


def test_the_launcher_of_an_mpijob_starts_when_its_workers_are_prepared(tmp_path: Path) -> None:
    container = "{name: x, image: mpi, command: [touch, made]}"
    run = run_of(tmp_path, on_worker(container))
    worker = run.roles["worker"].commands
    assert worker is not None
    assert worker[1:] == (f": >{PREPARED}", "sleep infinity")
    assert run.startup_order == "workers-first"
    assert (run.ready.command, run.ready.timeout) == (f"test -e {PREPARED}", 86400)
    # Node 0 is a worker too.
    assert run.commands[-2:] == (worker[0], "mpirun ./pi")
    ready = run.ready.command
    assert ready is not None
    assert executed(tmp_path, ready, GPUCTL_RUN_FOLDER=str(tmp_path))[0] == 1
    assert executed(tmp_path, *worker[:2], GPUCTL_RUN_FOLDER=str(tmp_path))[0] == 0
    assert executed(tmp_path, ready, GPUCTL_RUN_FOLDER=str(tmp_path))[0] == 0
    assert (tmp_path / "made").exists()


def test_a_launcher_that_is_a_node_by_itself_prepares_nothing_of_the_workers(
    tmp_path: Path,
) -> None:
    text = on_worker("{name: x, image: mpi, command: [touch, made]}")
    run = run_of(
        tmp_path, text.replace("spec:\n  mpi", "spec:\n  runLauncherAsWorker: true\n  mpi")
    )
    assert not any("touch" in command for command in run.commands)


def test_the_launchers_init_container_runs_on_node_0_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, with_init("{name: x, image: mpi, command: [touch, made]}"))
    assert "touch made" in run.commands[-2]
    assert run.roles["worker"].commands == ("sleep infinity",)
    assert run.ready.command is None


def test_a_secret_of_an_init_container_is_one_of_the_job(tmp_path: Path) -> None:
    container = (
        "{name: x, image: mpi, command: [sh, -c, 'echo ${#HF_TOKEN}'], env: [{name: HF_TOKEN,"
        " valueFrom: {secretKeyRef: {name: hf, key: token}}}]}"
    )
    run = run_of(tmp_path, with_init(container))
    assert run.roles["master"].env["HF_TOKEN"] == Secret(secret="HF_TOKEN")
    assert executed(tmp_path, run.commands[-2], HF_TOKEN="four")[1] == "4\n"
    other = with_init(container).replace(
        "[mpirun, ./pi]", "[mpirun, ./pi]\n              env: [{name: HF_TOKEN, value: mine}]"
    )
    assert lines(tmp_path, other) == [
        "9:28: E225 init container 'x' takes HF_TOKEN from a secret, and the job has another"
        " value; give one of them another name"
    ]


@pytest.mark.parametrize(
    "words",
    [
        "[sh, -c, 'mkdir -p /data && chmod 777 /data']",
        "[chown, -R, '1000:1000', /data]",
        "[/bin/sh, -ec, 'if [ ! -e /x ]; then touch /x; fi']",
        "[sh, -c, 'sleep 1; mkdir /x']",
    ],
)
def test_programs_that_every_image_has_run_in_the_jobs_image(tmp_path: Path, words: str) -> None:
    text = with_init(f"{{name: x, image: busybox, command: {words}}}")
    assert lines(tmp_path, text) == []
    assert len(run_of(tmp_path, text).commands) == len(run_of(tmp_path, MPIJOB).commands) + 1


@pytest.mark.parametrize(
    "words",
    [
        "[sh, -c, 'aws s3 cp s3://a/b /data']",
        "[sysctl, -w, vm.max_map_count=262144]",
        "[sh, -c, 'mkdir /x; wget http://a']",
        "[sh, -c, 'echo $(curl http://a)']",
        "[sh, -c, 'echo `id2`']",
    ],
)
def test_other_programs_of_another_image_are_refused(tmp_path: Path, words: str) -> None:
    assert lines(tmp_path, with_init(f"{{name: x, image: busybox, command: {words}}}")) == [
        "9:28: E225 init container 'x' has the image busybox, and a run has one: the job's is mpi;"
        f" give both one image, {NODES}"
    ]


def test_the_entrypoint_of_another_image_is_refused(tmp_path: Path) -> None:
    assert lines(tmp_path, with_init("{name: x, image: loader}")) == [
        "9:28: E225 init container 'x' has the image loader, and a run has one: the job's is mpi;"
        f" give both one image, {NODES}"
    ]
    assert lines(tmp_path, with_init("{name: x}")) == [
        f"9:28: E102 '{LAUNCHER_AT}.initContainers[0].command' is missing, and there is no image;"
        " add the command"
    ]


def test_nothing_within_a_refused_init_container_is_reported(tmp_path: Path) -> None:
    container = (
        "{name: proxy, image: 3, restartPolicy: Always, command: ['${PREPARE}'], colour: red}"
    )
    assert lines(tmp_path, with_init(container)) == [
        "9:28: E225 init container 'proxy' runs next to the job (restartPolicy: Always); start it"
        " in the background in the job's command, or remove it"
    ]


@pytest.mark.parametrize(
    "inside",
    [
        "env: [{name: A, value: '${BUCKET}'}]",
        "command: ['${PREPARE}'], securityContext: {privileged: true}",
        "envFrom: [{configMapRef: {name: x}}], colour: red",
    ],
)
def test_nothing_within_an_init_container_of_another_image_is_reported(
    tmp_path: Path, inside: str
) -> None:
    command = "" if "command" in inside else "command: [git, clone, x], "
    container = f"{{name: init, image: alpine/git, {command}{inside}}}"
    assert lines(tmp_path, with_init(container)) == [
        "9:28: E225 init container 'init' has the image alpine/git, and a run has one: the job's"
        " is mpi; give both one image, or do that in `setup.commands` of the cluster file"
    ]


MOUNTED = (
    "{{name: x, image: mpi, command: [touch, /data/x],"
    " volumeMounts: [{{name: data, mountPath: {}}}]}}"
)


@pytest.mark.parametrize(
    ("mount", "shown"),
    [("/work", "/work"), ("/data, subPath: raw", "/data (subPath raw)")],
)
def test_a_volume_at_two_places_is_refused(tmp_path: Path, mount: str, shown: str) -> None:
    text = on_worker(MOUNTED.format(mount))
    text += "              volumeMounts: [{name: data, mountPath: /data}]\n"
    errors = [line for line in lines(tmp_path, text) if "E225" in line]
    assert errors == [
        f"15:28: E225 init container 'x' has volume 'data' at {shown}, and the job at /data:"
        " nothing is mounted here; mount it at the same path in both"
    ]


def test_a_volume_at_one_place_is_a_folder_of_the_node(tmp_path: Path) -> None:
    text = on_worker(MOUNTED.format("/data/"))
    text += "              volumeMounts: [{name: data, mountPath: /data}]\n"
    assert [line.split()[1] for line in lines(tmp_path, text)] == ["W204", "W204"]
    worker = run_of(tmp_path, text).roles["worker"].commands
    assert worker is not None
    assert "touch /data/x" in worker[0]


def test_an_init_container_that_changes_the_node_is_refused(tmp_path: Path) -> None:
    text = on_worker(MOUNTED.format("/host"))
    text += "          volumes: [{name: data, hostPath: {path: /}}]\n"
    errors = [line for line in lines(tmp_path, text) if "E225" in line]
    assert errors == [
        "15:28: E225 init container 'x' changes the node, by volume 'data' (hostPath); do that in"
        " `setup.commands` of the cluster file"
    ]


@pytest.mark.parametrize(
    "key", ["envFrom: [{secretRef: {name: all}}]", "env: [{name: A, valueFrom: {}}]"]
)
def test_variables_that_only_kubernetes_has_are_refused(tmp_path: Path, key: str) -> None:
    text = with_init(f"{{name: x, image: mpi, command: [ls], {key}}}")
    (line,) = [line for line in lines(tmp_path, text) if "E225" in line]
    assert f"'{LAUNCHER_AT}.initContainers[0].env" in line
    assert "cannot be carried out: there is no Kubernetes here" in line


def test_each_task_of_a_volcano_job_is_prepared(tmp_path: Path) -> None:
    container = "initContainers: [{name: x, command: [sh, -c, 'echo $(VC_TASK_INDEX)']}]"
    one = VOLCANO.split("    - name: two")[0]
    run = run_of(tmp_path, one.replace("{spec: {", f"{{spec: {{{container}, "))
    assert "sh -c 'echo '\"$VC_TASK_INDEX\"" in run.commands[-2]
    assert run.commands[-1] == "mpirun x"
    two = VOLCANO.replace("[sshd, -D]", "[python3, work.py]").replace("[mpirun, x]", "[lead]")
    two = two.replace("spec:\n  tasks", "spec:\n  plugins: {pytorch: []}\n  tasks")
    own = run_of(tmp_path, two.replace("{spec: {", f"{{spec: {{{container}, "))
    for role in ("master", "worker"):
        commands = own.roles[role].commands
        assert commands is not None
        assert "echo" in commands[-2]


INIT_OF_RUNTIME = (
    "                  initContainers: [{name: x, image: mine:1, command: [fetch, model]}]\n"
    "                  containers:\n"
)


def test_a_runtimes_init_container_runs_on_every_node(tmp_path: Path) -> None:
    runtime = RUNTIME.replace("                  containers:\n", INIT_OF_RUNTIME)
    run = run_of(tmp_path, runtime + "---\n" + OF_MINE)
    assert "fetch model" in run.commands[1]
    assert run.commands[2] == "torchrun train.py"
    # The job's image replaces the runtime's, which has the init container's program.
    job = OF_MINE + "  trainer: {image: other}\n"
    assert [line for line in lines(tmp_path, runtime + "---\n" + job) if "E225" in line] == [
        "26:16: E225 init container 'x' has the image mine:1, and a run has one: the job's is"
        f" other; give both one image, {NODES}"
    ]


def test_a_runtime_of_mpi_prepares_every_node(tmp_path: Path) -> None:
    runtime = RUNTIME.replace("torch: {numProcPerNode: 4}", "mpi: {numProcPerNode: 4}")
    runtime = runtime.replace("                  containers:\n", INIT_OF_RUNTIME)
    run = run_of(tmp_path, runtime + "---\n" + OF_MINE)
    worker = run.roles["worker"].commands
    assert worker is not None
    assert "fetch model" in worker[0]
    assert run.commands[-2] == worker[0]


def test_init_containers_of_a_job_that_is_not_read_are_refused(tmp_path: Path) -> None:
    runtime = RUNTIME.replace("                  containers:\n", INIT_OF_RUNTIME)
    launcher = runtime[runtime.index("        - name: node") :].replace(
        "        - name: node", "        - name: launcher", 1
    )
    node = launcher.replace("- name: launcher", "- name: node", 1).replace(
        "            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}\n",
        "",
    )
    head = runtime[: runtime.index("        - name: node")]
    text = head + launcher + node + "---\n" + OF_MINE
    at = "spec.template.spec.replicatedJobs[1].template.spec.template.spec.initContainers"
    assert [line for line in lines(tmp_path, text) if "E225" in line] == [
        f"26:19: E225 '{at}' cannot be carried out: gpuctl reads job 'launcher' alone; write them"
        " in job 'launcher': they run on every node"
    ]
