"""Images of a run: names, what is pulled, pinned and refused, with the words that users read."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.errors import GpuctlError, RunError
from config.progress import Progress, Reporter, silent
from engine.contract.plan import LaunchPlan, NetworkPlan, Verify
from engine.session.container_images import pull, qualify_reference, repository
from nodes.answers import Completed
from nodes.inventory import Node
from tests.connections import Connect, WithoutSsh
from tests.engine.conftest import make_inventory, make_plan

pytestmark = pytest.mark.slow

RUNTIME = Path(__file__).parents[1] / "runtime"
DIGEST = f"sha256:{'1' * 64}"
EFA = NetworkPlan(preset="efa", promises="efa")


@pytest.mark.parametrize(
    ("written", "full", "without_tag"),
    [
        ("debian", "docker.io/library/debian", "docker.io/library/debian"),
        ("debian:12", "docker.io/library/debian:12", "docker.io/library/debian"),
        ("dstackai/efa", "docker.io/dstackai/efa", "docker.io/dstackai/efa"),
        ("nvcr.io/nvidia/pytorch:26.10-py3", "nvcr.io/nvidia/pytorch:26.10-py3",
         "nvcr.io/nvidia/pytorch"),
        ("10.0.0.1:5000/job", "10.0.0.1:5000/job", "10.0.0.1:5000/job"),
        ("localhost/job:1", "localhost/job:1", "localhost/job"),
        (f"team/job:1@{DIGEST}", f"docker.io/team/job:1@{DIGEST}", "docker.io/team/job"),
    ],
)  # fmt: skip
def test_a_reference_is_read_as_docker_reads_it(written: str, full: str, without_tag: str) -> None:
    assert qualify_reference(written) == full
    assert repository(written) == without_tag


class Machine(WithoutSsh):
    """Nodes that are this machine, each with a podman and images of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for rank in range(2):
            (folder / f"node{rank}").mkdir()

    def has(self, place: str, rank: int, reference: str, **image: Any) -> None:
        """`place` is `registry`, as that node sees it, or `images`."""
        path = self.folder / f"node{rank}" / f"{place}.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        given = {"id": "0a1b2c3d4e5f6071", "names": [], "lacks": [], **image}
        path.write_text(json.dumps({**known, reference: given}))

    def lines_of(self, rank: int, name: str) -> list[str]:
        path = self.folder / f"node{rank}" / name
        return path.read_text().splitlines() if path.exists() else []

    async def run(
        self, node: Node, command: str, *, stdin: str | None = None, **_: Any
    ) -> Completed:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "PATH": f"{RUNTIME}:{os.environ['PATH']}",
                "PODMAN": str(self.folder / node.name),
            },
        )
        out, err = await process.communicate((stdin or "").encode())
        assert process.returncode is not None
        return Completed(process.returncode, out.decode(), err.decode())

    async def lines(
        self, node: Node, command: str, *, stdin: str | None = None
    ) -> AsyncGenerator[str, None]:
        for line in (await self.run(node, command, stdin=stdin)).stdout.splitlines():
            yield line


@pytest.fixture
def machine(tmp_path: Path, reach_nodes: Callable[[Connect], None]) -> Machine:
    machine = Machine(tmp_path)
    reach_nodes(lambda _: machine)
    return machine


def pulled(
    plan: LaunchPlan, secrets: Mapping[str, str] = {}, report: Reporter = silent
) -> LaunchPlan:
    return asyncio.run(pull(plan, make_inventory(2), secrets, report))


def refusal(plan: LaunchPlan, **secrets: str) -> str:
    with pytest.raises(RunError) as refused:
        pulled(plan, secrets)
    return str(refused.value)


def test_nodes_pull_at_once_and_the_plan_names_the_image_for_good(machine: Machine) -> None:
    names = [f"docker.io/team/job@{DIGEST}", f"docker.io/other/job@sha256:{'2' * 64}"]
    for rank in range(2):
        machine.has("registry", rank, "docker.io/team/job:1", names=names)
    seen: list[Progress] = []
    plan = pulled(make_plan(image="team/job:1"), report=seen.append)
    assert plan.image is not None
    assert plan.image.reference == "team/job:1"
    assert plan.image.id == "0a1b2c3d4e5f6071"
    assert plan.image.digest == DIGEST
    assert plan.warnings == ()
    told = [(p.state, p.detail) for p in seen if (p.stage, p.subject) == ("pull", "node1")]
    assert told == [
        ("start", "team/job:1"),
        ("running", "layer 1"),
        ("running", "layer 2"),
        ("done", "0a1b2c3d4e5f"),
    ]


def test_a_plan_without_an_image_is_left_alone() -> None:
    plan = make_plan()
    assert pulled(plan) is plan


def test_an_image_that_no_node_gets_is_one_line_with_the_way_out(machine: Machine) -> None:
    assert refusal(make_plan(image="team/job:1")) == (
        "image team/job:1 cannot be pulled: node[0-1]: reading manifest in docker.io/team/job:1:"
        " manifest unknown; correct `image`, set `registry_auth`, or use `--no-image` to run the"
        " job directly on the nodes"
    )


def test_nodes_that_cannot_pull_use_the_image_that_they_have(machine: Machine) -> None:
    for rank in range(2):
        machine.has("images", rank, "localhost/job:1")
    seen: list[Progress] = []
    plan = pulled(make_plan(image="localhost/job:1"), report=seen.append)
    assert plan.image is not None
    assert plan.image.digest is None
    assert seen[-1].detail == (
        "0a1b2c3d4e5f, already on the node; not pulled: reading manifest in localhost/job:1:"
        " manifest unknown"
    )


def test_an_image_named_by_its_digest_that_is_there_is_not_pulled(machine: Machine) -> None:
    reference = f"docker.io/team/job@{DIGEST}"
    for rank in range(2):
        machine.has("images", rank, reference, names=[reference])
    plan = pulled(make_plan(image=f"team/job@{DIGEST}"))
    assert plan.image is not None
    assert plan.image.digest == DIGEST
    assert not [call for call in machine.lines_of(0, "calls") if call.startswith("pull")]


def test_nodes_with_different_images_are_named(machine: Machine) -> None:
    machine.has("registry", 0, "docker.io/team/job:1")
    machine.has("images", 1, "docker.io/team/job:1", id="ffffffffffffffff")
    assert refusal(make_plan(image="team/job:1")) == (
        "image team/job:1 is not the same on all nodes: node0 0a1b2c3d4e5f, node1 ffffffffffff;"
        " use its digest (`image: REPOSITORY@sha256:…`), or remove old images from the nodes"
    )


AUTH = {"username": "me", "password": {"secret": "WORD"}}


def test_a_password_comes_by_stdin_and_its_file_goes(machine: Machine) -> None:
    for rank in range(2):
        machine.has("registry", rank, "10.0.0.1:5000/job:1")
    plan = make_plan(image="10.0.0.1:5000/job:1", registry_auth=AUTH)
    pulled(plan, {"WORD": "open sesame"})
    (login,) = machine.lines_of(1, "logins")
    words, _, file = login.rpartition(" ")
    assert words == "['me', '10.0.0.1:5000']"
    assert file.startswith("/dev/shm/gpuctl-login.")
    assert not Path(file).parent.exists()
    assert "open sesame" not in "".join(machine.lines_of(1, "calls"))


def test_a_wrong_password_is_the_registrys_answer(machine: Machine) -> None:
    plan = make_plan(image="10.0.0.1:5000/job:1", registry_auth=AUTH)
    assert refusal(plan, WORD="open barley").startswith(
        "image 10.0.0.1:5000/job:1 cannot be pulled: node[0-1]: 10.0.0.1:5000 refused the"
        " login of me: Error: logging into it: invalid username/password; correct `image`"
    )
    (login,) = machine.lines_of(0, "logins")
    assert not Path(login.split()[-1]).parent.exists()


def with_image(machine: Machine, lacks: tuple[str, ...], **fields: Any) -> LaunchPlan:
    for rank in range(2):
        machine.has("registry", rank, "docker.io/team/job:1", lacks=list(lacks))
    return replace(make_plan(image="team/job:1"), **fields)


def test_an_image_without_bash_cannot_be_used(machine: Machine) -> None:
    assert refusal(with_image(machine, ("bash",))) == (
        "image team/job:1 has no bash, which runs the commands; add it to the image, or use"
        " `--no-image` to run the job directly on the nodes"
    )


def test_an_image_without_python_carries_tasks_but_no_mpi(machine: Machine) -> None:
    assert pulled(with_image(machine, ("python3",))).image is not None
    assert refusal(with_image(machine, ("python3",), type="mpi")) == (
        "image team/job:1 has no python3, which mpi needs to reach other nodes; add it to the"
        " image, or use `--no-image` to run the job directly on the nodes"
    )


def test_a_manifests_mpirun_needs_python_too(machine: Machine) -> None:
    plan = with_image(machine, ("python3",))
    head = replace(plan.nodes[0], script='x="$GPUCTL_RUN_FOLDER/bin/ssh" mpirun')
    assert refusal(replace(plan, nodes=(head, *plan.nodes[1:]))) == (
        "image team/job:1 has no python3, which mpirun needs to reach other nodes; add it to the"
        " image, or use `--no-image` to run the job directly on the nodes"
    )


def test_an_image_without_efa_is_said_before_the_job(machine: Machine) -> None:
    message = refusal(with_image(machine, ("libfabric", "plugin"), network=EFA))
    assert message == (
        "image team/job:1 has no libfabric (libfabric.so*) and no aws-ofi-nccl (libnccl-net*.so)"
        " for EFA: searched LD_LIBRARY_PATH, /opt/amazon/efa/lib*, /opt/amazon/ofi-nccl/lib*,"
        " /opt/amazon/ofi-nccl/lib*/*, /opt/aws-ofi-nccl/lib*, /opt/aws-ofi-nccl/install/lib*,"
        " /usr/local/lib*, /usr/lib*, /usr/lib/*-linux-gnu; add them to the image, set"
        " `network: tcp` in a run file, or use `--no-image` to run the job directly on the nodes"
    )
    assert pulled(with_image(machine, ("libfabric", "plugin"))).warnings == ()


@pytest.mark.parametrize(("verify", "count"), [("warn", 1), ("off", 0)])
def test_whoever_asked_for_warnings_is_warned(machine: Machine, verify: Verify, count: int) -> None:
    network = replace(EFA, verify=verify)
    plan = pulled(with_image(machine, ("plugin",), network=network))
    assert len(plan.warnings) == count
    for warning in plan.warnings:
        assert warning.startswith("image team/job:1 has no aws-ofi-nccl (libnccl-net*.so) for EFA:")
        assert warning.endswith("; NCCL will use sockets")


def test_mpi_on_one_node_needs_no_python(machine: Machine) -> None:
    plan = with_image(machine, ("python3",), type="mpi")
    assert pulled(replace(plan, nodes=plan.nodes[:1])).warnings == ()


def test_an_image_with_all_of_it_passes(machine: Machine) -> None:
    plan = pulled(with_image(machine, (), network=EFA, type="mpi"))
    assert plan.warnings == ()


class LostMachine(Machine):
    async def lines(self, *_: Any, **__: Any) -> AsyncGenerator[str, None]:
        raise GpuctlError("node0 (10.0.0.1): the connection was lost", "try again")
        yield ""


def test_another_error_is_told_as_it_is(
    tmp_path: Path, reach_nodes: Callable[[Connect], None]
) -> None:
    reach_nodes(lambda _: LostMachine(tmp_path))
    with pytest.raises(GpuctlError, match=r"^node0 \(10.0.0.1\): the connection was lost"):
        pulled(make_plan(image="team/job:1"))
