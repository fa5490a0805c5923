"""Programs in a container: their environment, streams and end, and the container's own."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.run.owned_variables import HYDRA_AGENT, OPEN_MPI_AGENT
from engine.agent.node.container import Container, Devices, data_folders
from engine.contract.node_plan import ImagePlan
from tests.processes import wait_for_end

RUNTIME = Path(__file__).parents[2] / "runtime"
NONE = Devices(Path("/none"), Path("/none"), (), Path("/none"))
ODD = "two words  \"double\" 'single' $HOME `id` \\n\nsecond line\té😀;&|"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("nsenter"), reason="namespaces need root and nsenter"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The run's folder, on a machine whose podman is ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{RUNTIME}:{os.environ['PATH']}")
        patch.setenv("PODMAN", str(tmp_path_factory.mktemp("podman")))
        yield tmp_path_factory.mktemp("job-000001")


@pytest.fixture(scope="module")
def box(folder: Path) -> Iterator[Container]:
    made = Container(ImagePlan("team/job:1", "0a1b"), folder, 0, NONE)
    made.prepare()
    yield made
    made.end()


def calls() -> list[str]:
    return Path(os.environ["PODMAN"], "calls").read_text().splitlines()


def output(box: Container, environment: dict[str, str], *argv: str) -> bytes:
    process = box.spawn(list(argv), environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return told


def test_a_container_is_a_file_system_and_devices_on_the_machine(
    box: Container, folder: Path
) -> None:
    name = f"gpuctl-{folder.name}-0"
    (started,) = (call for call in calls() if call.startswith("run ") and f"={name} " in call)
    assert started.startswith(
        f"run --detach --rm --pull=never --stop-signal=KILL --name={name}"
        " --no-healthcheck --user=0:0 --entrypoint=bash --network=host --ipc=host --pid=host"
        " --volume="
    )
    assert f" --volume={folder}:{folder} " in started
    assert " 0a1b -c exec 3<>" in started


def test_a_program_has_the_containers_files_and_is_the_workers_child(box: Container) -> None:
    told = output(box, box.environment(), "bash", "-c", "readlink /proc/self/ns/mnt; echo $PPID")
    space, parent = told.decode().split()
    assert space != str(Path("/proc/self/ns/mnt").readlink())
    assert int(parent) == os.getpid()


def test_a_container_has_the_devices_and_folders_that_the_run_asks_for(
    folder: Path, tmp_path: Path
) -> None:
    volumes = (f"{tmp_path}/new/data:/data", f"{tmp_path}:/here")
    image = ImagePlan("team/job:1", "0a1b", privileged=True, volumes=volumes)
    made = Container(image, folder, 13, NONE)
    made.prepare()
    made.end()
    (started,) = (call for call in calls() if f"=gpuctl-{folder.name}-13 " in call)
    assert f" --privileged --volume={volumes[0]} --volume={volumes[1]} 0a1b -c " in started
    assert (tmp_path / "new" / "data").is_dir()


def test_the_image_says_where_programs_begin_and_what_it_would_run(
    folder: Path, tmp_path: Path
) -> None:
    config = {"WorkingDir": str(tmp_path), "Entrypoint": ["/a b"], "Cmd": ["c", "$d"]}
    known = Path(os.environ["PODMAN"], "config.json")
    known.write_text(json.dumps(config))
    made = Container(ImagePlan("team/job:1", "0a1b"), folder, 14, NONE)
    try:
        made.prepare()
        environment = made.environment()
        assert environment["GPUCTL_IMAGE_ENTRYPOINT"] == "'/a b'"
        assert environment["GPUCTL_IMAGE_COMMAND"] == "c '$d'"
        assert output(made, environment, "pwd").decode() == f"{tmp_path}\n"
        assert output(made, {**environment, "GPUCTL_WORKDIR": "/usr"}, "pwd") == b"/usr\n"
    finally:
        made.end()
        known.unlink()


def test_an_image_without_a_folder_begins_in_the_home(box: Container) -> None:
    environment = box.environment()
    names = ("FOLDER", "ENTRYPOINT", "COMMAND")
    assert [environment[f"GPUCTL_IMAGE_{name}"] for name in names] == ["", "", ""]
    assert output(box, {**environment, "HOME": "/usr"}, "pwd") == b"/usr\n"


def test_the_images_environment_is_there_and_leads_launchers_to_the_agent(
    box: Container, folder: Path
) -> None:
    environment = box.environment()
    assert environment["OF_IMAGE"] == "yes"
    assert environment["PATH"] == "/image/bin:/usr/bin:/bin"
    assert environment["HOME"] == "/root"
    agents = {*OPEN_MPI_AGENT, *(program for _, program in HYDRA_AGENT)}
    assert {environment[name] for name in agents} == {f"{folder}/bin/ssh"}
    assert {environment[kind] for kind, _ in HYDRA_AGENT} == {"ssh"}


VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
NAMES = st.from_regex("GPU[A-Z_0-9]{0,8}", fullmatch=True)


@settings(max_examples=25)
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_any_environment_arrives_as_it_is(box: Container, given_: dict[str, str]) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "gpuctl": ODD, **given_}
    told = output(box, environment, "env", "-0").split(b"\0")
    for name, value in environment.items():
        assert f"{name}={value}".encode() in told


def test_the_jobs_libraries_are_not_those_of_the_way_in(box: Container, tmp_path: Path) -> None:
    wanted = {"PATH": "/usr/bin:/bin", "HOME": "/", "LD_PRELOAD": "/image/lib/libfast.so"}
    process = box.spawn(
        ["bash", "-c", 'echo "$LD_PRELOAD"; exec 2>/dev/null'],
        wanted,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    told, complaints = process.communicate(timeout=60)
    assert told == b"/image/lib/libfast.so\n"
    # one from the job's bash itself; none from nsenter
    assert complaints.count(b"cannot be preloaded") == 1


def test_secrets_are_in_no_arguments(box: Container) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "TOKEN": "hunter2hunter2"}
    process = box.spawn(["sleep", "60"], environment)
    try:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                assert b"hunter2hunter2" not in path.read_bytes()
    finally:
        process.kill()
        process.wait()
    assert "hunter2hunter2" not in "".join(calls())


def test_streams_status_and_signals_are_the_programs_own(box: Container) -> None:
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/"}
    argv = ["bash", "-c", "cat; exit 7"]
    with box.spawn(argv, plain, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.communicate(b"through", timeout=60)[0] == b"through"
        assert process.returncode == 7
    argv = ["bash", "-c", "sleep 60 & echo up; wait"]
    with box.spawn(argv, plain, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
        assert process.stdout.read() == b""  # the sleep of its group has ended too


def test_nothing_of_the_way_in_stays_open(box: Container) -> None:
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/"}
    told = output(box, plain, "ls", "/proc/self/fd")
    assert told.split() == [b"0", b"1", b"2", b"3"]  # 3: ls reads the folder


def test_a_home_that_is_not_in_the_image_is_the_root(box: Container) -> None:
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/home/nobody-has"}
    assert output(box, plain, "pwd") == b"/\n"


def test_the_end_removes_the_container_and_its_pipe(folder: Path) -> None:
    made = Container(ImagePlan("team/job:1", "0a1b"), folder, 1, NONE)
    made.prepare()
    name = f"gpuctl-{folder.name}-1"
    first = int(Path(os.environ["PODMAN"], name).read_text().split()[0])
    made.end()
    assert calls()[-1] == f"rm --force {name}"
    assert not (folder / "container-1").exists()
    wait_for_end(first)


def test_the_container_goes_with_its_worker_however_that_dies(folder: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from engine.agent.node import container;"
        "from engine.contract.plan import ImagePlan;"
        f"made = container.Container(ImagePlan('team/job:1', '0a1b'), Path({str(folder)!r}), 2);"
        "made.prepare(); print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"up\n"
        first = int(Path(os.environ["PODMAN"], f"gpuctl-{folder.name}-2").read_text().split()[0])
        worker.kill()
    wait_for_end(first)


def test_a_container_that_cannot_start_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    made = Container(ImagePlan("team/job:1", "0a1b"), folder, 3, NONE)
    with pytest.raises(OSError, match=r"^neither docker nor podman is installed$"):
        made.prepare()
    made.end()
    assert not (folder / "container-3").exists()


def test_gpus_and_infiniband_come_in_where_the_machine_has_them(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    devices = NONE._replace(cdi=(tmp_path / "none", tmp_path), infiniband=tmp_path)
    made = Container(ImagePlan("team/job:1", "0a1b"), folder, 4, devices)
    made.prepare()
    made.end()
    started = next(call for call in calls() if f"--name=gpuctl-{folder.name}-4" in call)
    assert " --device=nvidia.com/gpu=all " in started
    assert f" --device={tmp_path} " in started


def test_docker_names_gpus_its_own_way(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker.sock").touch()
    (tmp_path / "docker").symlink_to(RUNTIME / "podman")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    devices = NONE._replace(docker=tmp_path / "docker.sock", nvidia=tmp_path / "docker.sock")
    made = Container(ImagePlan("team/job:1", "sha256:0a1b"), folder, 5, devices)
    made.prepare()
    made.end()
    started = next(call for call in calls() if f"--name=gpuctl-{folder.name}-5" in call)
    assert " --gpus=all " in started


MOUNTS = b"""\
overlay / overlay rw 0 0
proc /proc proc rw 0 0
tmpfs /run tmpfs rw 0 0
/dev/nvme0n1p15 /boot/efi vfat rw 0 0
fs-0123.efs.us-east-1.amazonaws.com:/ /shared nfs4 rw 0 0
/dev/md127 /opt/dlami/nvme ext4 rw 0 0
10.0.0.9@tcp:/abcd /data/with\\040space lustre rw 0 0
/dev/nvme1n1 /var/lib/docker xfs rw 0 0
/dev/nvme2n1 /odd:name xfs rw 0 0
"""


def test_shared_and_scratch_folders_are_those_that_come_in() -> None:
    assert data_folders(MOUNTS) == ["/data/with space", "/opt/dlami/nvme", "/shared"]
