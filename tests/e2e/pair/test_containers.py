"""Jobs in containers: podman on the machines, and a real registry on one of them."""

import base64
import json
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, read_until, run_file

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

ODD = "a  b \"q\" 'x' $HOME; ü\nsecond line \\ end"
USER, PASSWORD = "puller", "correct horse; $battery"

# The images are made of the machine's own root: Open MPI, Python and the lab's EFA; and one that
# has bash and Python, and of EFA nothing. Debian's docker-registry serves them, with and without a
# password. `differs` is made on each machine, so that no two are the same.
SET_UP = """\
set -e
ip=$(hostname -I | tr ' ' '\\n' | grep '^10[.]')
apt-get -qq update
apt-get -qq install --yes --no-install-recommends docker-registry > /dev/null 2>&1
systemctl stop docker-registry
cd /root
cat > open.yml << END
version: 0.1
storage: {filesystem: {rootdirectory: /root/registry}}
http: {addr: ":5000"}
END
cat > closed.yml << END
version: 0.1
storage: {filesystem: {rootdirectory: /root/registry}}
http: {addr: ":5001"}
auth: {htpasswd: {realm: lab, path: /root/htpasswd}}
END
python3 -W ignore - << 'END'
import crypt
word = crypt.crypt(%(password)r, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))
open("/root/htpasswd", "w").write("%(user)s:" + word + "\\n")
END
systemd-run --quiet --unit=open docker-registry serve /root/open.yml
systemd-run --quiet --unit=closed docker-registry serve /root/closed.yml
files='bin lib lib64 sbin tmp etc/alternatives etc/openmpi etc/passwd etc/group'
files="$files usr/bin usr/lib usr/lib64"
leave='--exclude=usr/bin/podman --exclude=usr/lib/systemd --exclude=usr/lib/python3 --exclude=perl'
tar -C / -c $leave $files usr/share/openmpi opt/amazon root/nccl-tests |
  podman import --quiet --change 'ENV OF_THE_IMAGE=yes' \\
    --change 'ENTRYPOINT ["/bin/echo", "the entrypoint,"]' --change 'CMD ["its command"]' \\
    - localhost:5000/job:1 > /dev/null
tar -C / -c $leave --exclude='*openmpi*' --exclude='libfabric*' $files |
  podman import --quiet - localhost:5000/plain:1 > /dev/null
tar -C / -c bin/true lib64 | podman import --quiet - localhost:5000/empty:1 > /dev/null
for name in job plain empty; do
  podman push --quiet --tls-verify=false localhost:5000/$name:1
  podman rmi localhost:5000/$name:1 > /dev/null
done
"""
ON_EACH = """\
printf '[[registry]]\\nlocation = "%(ip)s:5000"\\ninsecure = true\\n' > {conf}
printf '[[registry]]\\nlocation = "%(ip)s:5001"\\ninsecure = true\\n' >> {conf}
tar -C / -c etc/hostname | podman import --quiet - localhost/differs:1
""".format(conf="/etc/containers/registries.conf.d/95-here.conf")

LEFT = """\
podman ps --all --quiet | wc -l
mount | grep -c containers/storage/overlay
systemctl list-units --no-legend 'gpuctl-run-*' 'libpod-*' | wc -l
ls -d /dev/shm/gpuctl-login.* 2> /dev/null | wc -l
pgrep -c 'sleep|conmon'
true
"""
NOTHING = "--- node[0-1]\n0\n0\n0\n0\n0\n"


@pytest.fixture(scope="module")
def registry(gpuctl: Gpuctl, cluster: str) -> str:
    """The address of the first machine, with a registry on port 5000 and a closed one on 5001."""
    gpuctl("--lab", "ssh", cluster, "node0", SET_UP % {"user": USER, "password": PASSWORD})
    address: str = gpuctl.json("--lab", "status", cluster)[0]["nodes"][-2]["private_ip"]
    gpuctl("--lab", "exec", cluster, "--", ON_EACH % {"ip": address})
    return address


def left(gpuctl: Gpuctl, cluster: str) -> str:
    """Of runs in containers on the nodes: NOTHING, or what there is of each kind."""
    return gpuctl("--lab", "exec", cluster, "--", LEFT)


def test_mpi_runs_across_containers(
    gpuctl: Gpuctl, cluster: str, registry: str, tmp_path: Path
) -> None:
    command = (
        'echo "$OMPI_COMM_WORLD_RANK $GPUCTL_NODE_NAME $(test -e /run/.containerenv && echo in)'
        ' $OF_THE_IMAGE $(printf %s "$ODD" | base64 -w 0) $(nvidia-smi -L | wc -l)'
        ' $(grep -c " /scratch " /proc/mounts) $PWD"'
    )
    mpi = {"type": "mpi", "procs_per_node": 2, "image": f"{registry}:5000/job:1"}
    file = run_file(tmp_path, "boxed", [command], env={"ODD": ODD}, **mpi)
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster)
    assert f"-- image {registry}:5000/job:1, sha256:" in output
    odd = base64.b64encode(ODD.encode()).decode()
    for rank in range(4):
        assert f"[node0] {rank} node{rank // 2} in yes {odd} 8 1 /root\n" in output
    assert left(gpuctl, cluster) == NOTHING

    file = run_file(tmp_path, "fails", ["exit $((OMPI_COMM_WORLD_RANK / 3 * 23))"], **mpi)
    gpuctl("--lab", "run", str(file), "--cluster", cluster, code=23)
    assert left(gpuctl, cluster) == NOTHING


def test_a_task_calls_mpirun_as_on_machines_with_ssh(
    gpuctl: Gpuctl, cluster: str, registry: str, tmp_path: Path
) -> None:
    """mpirun of a task finds its way without an ssh, a key or a hostfile of gpuctl's."""
    command = (
        "if [ $DSTACK_NODE_RANK -ne 0 ]; then sleep infinity; fi;"
        ' printf "%s slots=1\\n" $DSTACK_NODES_IPS > hosts;'
        " mpirun --allow-run-as-root --hostfile hosts -n 2 bash -c"
        " 'echo $(hostname) $(cat /proc/mounts | grep -c containers/storage)'"
    )
    file = run_file(
        tmp_path,
        "plainmpi",
        [command],
        image=f"{registry}:5000/job:1",
        startup_order="workers-first",
        stop_criteria="master-done",
    )
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster)
    hosts = {line.split()[1] for line in output.splitlines() if line.startswith("[node0] ip-")}
    assert len(hosts) == 2
    assert left(gpuctl, cluster) == NOTHING


OF_DSTACK = "type: task\nname: starts\nnodes: 2\nidle_duration: 1h\nimage: {image}\n"
OF_VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: starts}}
spec:
  tasks:
    - replicas: 2
      name: node
      template: {{spec: {{containers: [{{name: node, image: "{image}", args: ["its argument"]}}]}}}}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OF_DSTACK, "the entrypoint, its command"),
        (OF_DSTACK + "entrypoint: printf %s-%s\ncommands: [a b, c]\n", "a b-c"),
        (OF_VOLCANO, "the entrypoint, its argument"),
    ],
    ids=["command-of-image", "entrypoint-of-file", "argument-of-file"],
)
def test_an_image_is_started_by_its_entrypoint_or_the_files(
    gpuctl: Gpuctl, cluster: str, registry: str, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "starts.yaml"
    file.write_text(text.format(image=f"{registry}:5000/job:1"))
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster)
    found = sorted(line for line in output.splitlines() if said in line)
    assert found == [f"[node0] {said}", f"[node1] {said}"]


TRAIN = """\
import json, os, pathlib, sys, time
rank = os.environ["GPUCTL_NODE_RANK"]
folder = pathlib.Path("checkpoints")
folder.mkdir()
for step in range(1000):
    text = json.dumps({"rank": rank, "step": step, "data": open("data/words").read()})
    (folder / f"step-{step}.json").write_text(text)
    print("step", step, "in", os.getcwd(), os.path.exists("/run/.containerenv"), flush=True)
    time.sleep(0.2)
"""


@pytest.mark.parametrize("option", ["--image", "--no-image"])
def test_a_folder_travels_and_checkpoints_come_back_when_the_run_is_stopped(
    gpuctl: Gpuctl, cluster: str, registry: str, tmp_path: Path, option: str
) -> None:
    mine = tmp_path / "mine"
    (mine / "data").mkdir(parents=True)
    (mine / "train.py").write_text(TRAIN)
    (mine / "data" / "words").write_text("ü and more")
    (mine / ".gitignore").write_text("*.log\n")
    (mine / "old.log").write_text("does not travel")
    file = run_file(
        mine,
        "travels",
        ["test ! -e old.log", "python3 train.py"],
        image=f"{registry}:5000/job:1",
        workdir=".",
        outputs=["checkpoints/"],
    )
    arguments = ["--lab", "run", str(file), "--cluster", cluster]
    arguments += ["--no-image"] if option == "--no-image" else []
    with gpuctl.running(*arguments) as process:
        lines = read_until(process, "step 2 in")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=90)
        assert process.returncode == 130, rest
    run_id = gpuctl.json("--lab", "ps")[0]["run_id"]
    where = f"in /var/lib/gpuctl/runs/{run_id}/work {option == '--image'}\n"
    assert all(line.endswith(where) for line in lines if "] step" in line)
    outputs = mine / "outputs" / run_id
    assert f"in {outputs}\n" in rest
    for rank in ("0", "1"):
        text = (outputs / f"rank-{rank}" / "checkpoints" / "step-0.json").read_text()
        assert json.loads(text) == {"rank": rank, "step": 0, "data": "ü and more"}
    assert left(gpuctl, cluster) == NOTHING


def test_a_stop_and_the_death_of_client_or_worker_leave_no_container(
    gpuctl: Gpuctl, cluster: str, registry: str, tmp_path: Path
) -> None:
    command = "setsid sleep infinity & echo up; sleep infinity"
    file = run_file(tmp_path, "stays", [command], image=f"{registry}:5000/job:1")
    arguments = ("--lab", "run", str(file), "--cluster", cluster)
    with gpuctl.running(*arguments) as process:
        read_until(process, "[node1] up")
        process.kill()
    assert left(gpuctl, cluster) != NOTHING
    gpuctl("--lab", "stop", "stays")
    assert left(gpuctl, cluster) == NOTHING

    with gpuctl.running(*arguments) as process:
        read_until(process, "[node1] up")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 130, rest
    assert left(gpuctl, cluster) == NOTHING

    kill = "systemctl kill --signal=KILL 'gpuctl-run-{}.service'"
    with gpuctl.running(*arguments) as process:
        read_until(process, "[node1] up")
        gpuctl("--lab", "ssh", cluster, "node1", kill.format("*-1"))
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 137, rest
    assert left(gpuctl, cluster) == NOTHING

    # The supervisor, which is the head's unit without a rank: the next one takes the job up.
    with gpuctl.running(*arguments) as process:
        read_until(process, "[node1] up")
        gpuctl("--lab", "ssh", cluster, "node0", kill.format("stays-??????"))
        read_until(process, "-- supervisor resumed")
        gpuctl("--lab", "stop", "stays")
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 130, rest
    assert left(gpuctl, cluster) == NOTHING


def test_a_private_registry_is_entered_with_a_secret(
    gpuctl: Gpuctl, cluster: str, registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = {"username": USER, "password": {"secret": "REGISTRY_PASSWORD"}}
    image = {"image": f"{registry}:5001/plain:1", "registry_auth": auth, "network": "tcp"}
    file = run_file(tmp_path, "private", ["echo hello from $GPUCTL_NODE_NAME"], **image)
    arguments = ("--lab", "run", str(file), "--cluster", cluster)

    monkeypatch.setenv("REGISTRY_PASSWORD", "not this one")
    refused = gpuctl(*arguments, code=125)
    assert f"node[0-1]: {registry}:5001 refused the login of {USER}: " in refused
    assert "set `registry_auth`" in refused

    monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
    output = gpuctl(*arguments)
    assert "[node0] hello from node0\n" in output
    assert "[node1] hello from node1\n" in output
    search = "grep -rlF '$battery' /run /root /etc /var/lib/gpuctl 2> /dev/null | wc -l"
    assert gpuctl("--lab", "exec", cluster, "--", search) == "--- node[0-1]\n0\n"
    assert left(gpuctl, cluster) == NOTHING


def test_an_image_of_which_nodes_have_different_ones_is_refused(
    gpuctl: Gpuctl, cluster: str, registry: str, tmp_path: Path
) -> None:
    file = run_file(tmp_path, "differs", ["true"], image="localhost/differs:1")
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=125)
    assert "gpuctl: error: image localhost/differs:1 is not the same on all nodes: node0 " in output
    assert ", node1 " in output.splitlines()[-1]


def test_an_image_that_nobody_has_is_one_line_and_the_host_the_way_out(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    image = "127.0.0.1:5009/nobody/has-it"
    file = run_file(tmp_path, "nobody", ["test ! -e /run/.containerenv"], image=image)
    arguments = ("--lab", "run", str(file), "--cluster", cluster)
    output = gpuctl(*arguments, code=125)
    errors = [line for line in output.splitlines() if line.startswith("gpuctl: error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(f"gpuctl: error: image {image} cannot be pulled: node[0-1]: ")
    assert errors[0].endswith("use `--no-image` to run the job directly on the nodes")
    gpuctl(*arguments, "--no-image")
    # no machine of the lab asks a registry outside: of public names podman says so by itself, and
    # a name that is nobody's meets its closed proxy
    for host, reason in (("registry.example.com", "is blocked"), ("registry.invalid", "proxy")):
        file = run_file(tmp_path, "outside", ["true"], image=f"{host}/job:1")
        assert reason in gpuctl("--lab", "run", str(file), "--cluster", cluster, code=125)


def test_what_an_image_lacks_is_said_before_the_job(
    gpuctl: Gpuctl, cluster: str, registry: str, tmp_path: Path
) -> None:
    plain = {"image": f"{registry}:5000/plain:1"}
    file = run_file(tmp_path, "lacks", ["echo ran"], **plain)
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=125)
    assert (
        "has no libfabric (libfabric.so*) and no aws-ofi-nccl (libnccl-net*.so) for EFA" in output
    )
    assert "set `network: tcp`" in output
    assert "ran" not in output

    file = run_file(tmp_path, "warned", ["echo ran"], verify="warn", **plain)
    assert "[node1] ran\n" in gpuctl("--lab", "run", str(file), "--cluster", cluster)

    file = run_file(tmp_path, "empty", ["echo ran"], image=f"{registry}:5000/empty:1")
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=125)
    assert f"image {registry}:5000/empty:1 has no bash, which runs the commands" in output
