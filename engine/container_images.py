"""The container image of a run: on all its nodes, the same one, and fit for the run.

All of it happens before the job starts, from the client: what a registry or an image lacks is told
then, not by the first rank that misses it.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from config.errors import GpuctlError, RunError
from config.progress import Progress, Reporter
from engine.launch_plan import ImagePlan, LaunchPlan
from nodes.fanout import fold_answers, on_each
from nodes.inventory import Inventory, Node
from nodes.kept import KeptConnections, connect

PULL_S = 3600
"""A pull that takes longer hangs: 100 GB at 30 MB/s take as long."""
CHECK_S = 120

_ON_THE_HOST = "`--no-image` runs the job on the nodes themselves"
_STAGE = "pull"
_SAYS = "gpuctl: "

# Docker is preferred where its daemon is, as in engine/agent/container.py.
_RUNTIME = """\
runtime=podman
if [ -S /var/run/docker.sock ]; then runtime=docker; fi
"""

# Arguments: the reference in full, as the user wrote it, its registry, the user there. Stdin: the
# password. /run is in memory. Its last line is for us; those before are the runtime's.
_PULL = f"""{_RUNTIME}
say() {{ printf '{_SAYS}%s\\n' "$*"; exit 0; }}
inspect() {{
  for name in "$1" "$2"; do
    $runtime image inspect --format '{{{{.Id}}}} {{{{json .RepoDigests}}}}' -- "$name" 2> /dev/null &&
      return
  done
  return 1
}}
command -v $runtime > /dev/null || say failed neither docker nor podman is there
case $1 in *@*) found=$(inspect "$1" "$2") && say image "$found" ;; esac
if [ -n "$4" ]; then
  login=$(mktemp -d /run/gpuctl-login.XXXXXX)
  trap 'rm -rf "$login"' EXIT
  export DOCKER_CONFIG="$login" REGISTRY_AUTH_FILE="$login/config.json"
  said=$($runtime login --username "$4" --password-stdin -- "$3" 2>&1 > /dev/null) ||
    say failed "$3 does not let $4 in: $(printf '%s' "$said" | tail -n 1)"
fi
timeout {PULL_S} $runtime pull -- "$1" 2>&1 < /dev/null
status=$?
found=$(inspect "$1" "$2") || say failed
if [ $status -ne 0 ]; then say there "$found"; fi
say image "$found"
"""  # noqa: E501

_PLUGIN = "aws-ofi-nccl (libnccl-net*.so)"
_LIBFABRIC = "libfabric (libfabric.so*)"
_FOLDERS = (
    "/opt/amazon/efa/lib*", "/opt/amazon/ofi-nccl/lib*", "/opt/amazon/ofi-nccl/lib*/*",
    "/opt/aws-ofi-nccl/lib*", "/opt/aws-ofi-nccl/install/lib*", "/usr/local/lib*", "/usr/lib*",
    "/usr/lib/*-linux-gnu",
)  # fmt: skip
"""Where EFA's installer, Debian's packages and AWS's own images have them; LD_LIBRARY_PATH too
(aws-efa.md section 3, 2026-11-20)."""

# In the image's own bash, so that nothing else of the image is needed to look.
_LOOK = f"""\
if command -v python3 > /dev/null; then echo python3; fi
IFS=: read -ra places <<< "$LD_LIBRARY_PATH"
for place in "${{places[@]}}" {" ".join(_FOLDERS)}; do
  if compgen -G "$place/libfabric.so*" > /dev/null; then echo libfabric; fi
  if compgen -G "$place/libnccl-net*.so*" > /dev/null; then echo plugin; fi
done
exit 0
"""

# Their launchers start processes on other nodes by gpuctl's remote agent, which runs in the image.
_LAUNCHERS = ("mpi", "nccl-tests", "horovod", "deepspeed")


@dataclass(frozen=True)
class _Found:
    """An image on a node: its own hash, and its names in registries (`REPOSITORY@DIGEST`)."""

    id: str
    names: frozenset[str]


class _NotPulled(RunError):
    """A node has no such image and got none; the message is the runtime's reason alone."""


async def pull(
    plan: LaunchPlan, inventory: Inventory, secrets: Mapping[str, str], report: Reporter
) -> LaunchPlan:
    """The plan with its image pinned: every node has that image, and it has what the run needs.

    Nodes pull at the same time; progress has stage `pull`. A node that cannot pull takes the image
    of that name which it has already. A plan without an image comes back as it is; what the image
    lacks and the run may do without is among its warnings. Raises RunError where a node gets no
    image, where nodes have different ones, and where the image lacks something; NodeError where a
    node cannot be reached.
    """
    image = plan.image
    if image is None:
        return plan
    names = {node.name for node in plan.nodes}
    nodes = [node for node in inventory.nodes if node.name in names]
    password = secrets[image.password_secret] if image.password_secret else ""
    async with connect(inventory) as connections:

        async def on(node: Node) -> _Found:
            return await _pull(connections, node, image, password, report)

        found = _same(image, nodes, await on_each(nodes, on))
        pinned = image.model_copy(update={"id": found.id, "digest": _digest(image, found)})
        lacking = await _lacking(connections, nodes[0], plan, pinned)
    return plan.model_copy(
        update={"image": pinned, "warnings": (*plan.warnings, *_verdict(plan, image, lacking))}
    )


def qualified(reference: str) -> str:
    """The reference with its registry in front, as Docker reads it (`docker.io/library/debian`).

    A first part with a dot or a colon, or `localhost`, is a registry; Docker Hub's `library` has
    the images without a folder (https://pkg.go.dev/github.com/distribution/reference, 2026-11-20).
    """
    first, slash, _ = reference.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"


def repository(reference: str) -> str:
    """The qualified reference without tag and digest: `docker.io/library/debian`."""
    name = qualified(reference).partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


async def _pull(
    connections: KeptConnections, node: Node, image: ImagePlan, password: str, report: Reporter
) -> _Found:
    report(Progress(_STAGE, node.name, "start", image.reference))
    full = qualified(image.reference)
    words = (full, image.reference, full.partition("/")[0], image.username)
    command = shlex.join(["bash", "-c", _PULL, "pull", *words])
    layers, said, answer = 0, "it said nothing", ""
    async with aclosing(connections.lines(node, command, stdin=password or None)) as lines:
        async for line in lines:
            if line.startswith(_SAYS):
                answer = line.removeprefix(_SAYS)
            elif line.strip():
                said = line.strip()
                if said.startswith("Copying blob") or said.endswith("Pull complete"):
                    layers += 1
                    report(Progress(_STAGE, node.name, "running", f"layer {layers}"))
    outcome, _, rest = answer.partition(" ")
    reason = (rest if outcome == "failed" and rest else said).removeprefix("Error: ").rstrip(",")
    if outcome not in {"image", "there"}:
        report(Progress(_STAGE, node.name, "failed", reason))
        raise _NotPulled(reason, "")
    identity, _, names = rest.partition(" ")
    detail = identity.removeprefix("sha256:")[:12]
    if outcome == "there":
        detail += f", which was there; not pulled: {reason}"
    report(Progress(_STAGE, node.name, "done", detail))
    return _Found(identity, frozenset(json.loads(names) or ()))


def _same(
    image: ImagePlan, nodes: Sequence[Node], answers: Mapping[int, _Found | GpuctlError]
) -> _Found:
    """The image that all nodes have; RunError where one has none, or where they differ."""
    broken = [answer for answer in answers.values() if isinstance(answer, GpuctlError)]
    for error in broken:
        if not isinstance(error, _NotPulled):
            raise error
    if broken:
        reasons = {rank: e.message for rank, e in answers.items() if isinstance(e, GpuctlError)}
        told = "; ".join(f"{g.names}: {g.answer}" for g in fold_answers(nodes, reasons))
        raise RunError(
            f"image {image.reference} cannot be pulled: {told}",
            f"correct `image`, name who may pull it in `registry_auth`, or: {_ON_THE_HOST}",
        )
    found = {rank: answer for rank, answer in answers.items() if isinstance(answer, _Found)}
    ids = {rank: answer.id.removeprefix("sha256:")[:12] for rank, answer in found.items()}
    if len(set(ids.values())) > 1:
        told = ", ".join(f"{g.names} {g.answer}" for g in fold_answers(nodes, ids))
        raise RunError(
            f"image {image.reference} is not the same on all nodes: {told}",
            "name it by its digest (`image: REPOSITORY@sha256:…`), or remove the old ones there",
        )
    names = frozenset.intersection(*(answer.names for answer in found.values()))
    return _Found(next(iter(found.values())).id, names)


def _digest(image: ImagePlan, found: _Found) -> str | None:
    """By which the registry knows the image; None where it came from none."""
    names = (n for n in found.names if repository(n) == repository(image.reference))
    digests = sorted(name.partition("@")[2] for name in names)
    written = qualified(image.reference).partition("@")[2]
    return written or (digests[0] if digests else None)


async def _lacking(
    connections: KeptConnections, node: Node, plan: LaunchPlan, image: ImagePlan
) -> tuple[str, ...]:
    """What the image has not and the run needs, of bash, python3 and EFA's libraries."""
    start = "run --rm --pull=never --network=none --user=0:0 --entrypoint=bash"
    command = f"{_RUNTIME}$runtime {start} {shlex.quote(image.id)} -c {shlex.quote(_LOOK)}"
    done = await connections.run(node, command, timeout=CHECK_S)
    if done.exit_status == 127:
        return ("bash",)
    if done.exit_status != 0:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1].removeprefix("Error: ")
        raise RunError(
            f"image {image.reference} cannot be run on {node.name} ({node.private_ip}): {said}",
            f"see it with `gpuctl ssh {plan.cluster} {node.name}`, or: {_ON_THE_HOST}",
        )
    has = done.stdout.split()
    lacking = []
    if "python3" not in has and plan.type in _LAUNCHERS and len(plan.nodes) > 1:
        lacking.append("python3")
    if plan.network.promises == "efa" and plan.network.verify != "off":
        lacking += [] if "libfabric" in has else [_LIBFABRIC]
        lacking += [] if "plugin" in has else [_PLUGIN]
    return tuple(lacking)


def _verdict(plan: LaunchPlan, image: ImagePlan, lacking: Sequence[str]) -> tuple[str, ...]:
    """Warnings about what the image lacks; RunError where the run cannot do without it."""
    if "bash" in lacking:
        raise RunError(
            f"image {image.reference} has no bash, which runs the commands",
            f"add it to the image, or: {_ON_THE_HOST}",
        )
    if "python3" in lacking:
        raise RunError(
            f"image {image.reference} has no python3, with which {plan.type} reaches other nodes",
            f"add it to the image, or: {_ON_THE_HOST}",
        )
    if not lacking:
        return ()
    where = f"looked for in LD_LIBRARY_PATH, {', '.join(_FOLDERS)}"
    message = f"image {image.reference} has no {' and no '.join(lacking)} for EFA: {where}"
    if plan.network.verify == "warn":
        return (f"{message}; NCCL will use sockets",)
    raise RunError(message, f"add them to the image, say `network: tcp`, or: {_ON_THE_HOST}")
