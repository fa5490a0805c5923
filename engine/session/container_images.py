"""The container image of a run: pulled on all its nodes, identical there, and checked.

The client does this before the job starts, so that a missing image or a missing part of it is
reported at once and not by the first rank that needs it.
"""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any

from config.bounds import Pattern
from config.command_text import command_text
from config.errors import GpuctlError, NodeError, RunError
from config.foreign import Malformed, parse_foreign
from config.identifiers import is_valid
from config.progress import Progress, Reporter
from engine.agent.node.container import CHOOSE_RUNTIME
from engine.contract.node_plan import ImagePlan
from engine.contract.plan import LaunchPlan
from nodes.fanout import fold_answers, on_each
from nodes.inventory import Inventory, Node
from nodes.kept_connections import KeptConnections, connect

PULL_S = 3600
"""Seconds for a pull: 100 GB at 30 MB/s take as long."""
CHECK_S = 120

_ON_THE_HOST = "use `--no-image` to run the job directly on the nodes"
_STAGE = "pull"
_ANSWER = "gpuctl: "

# Arguments: the qualified reference, the reference of the run file, the registry, the registry's
# user. Stdin: the password. The login is in /run, which is in memory. The last line of output is
# the answer to gpuctl; the lines before are the runtime's.
_PULL = f"""{CHOOSE_RUNTIME}
say() {{ printf '{_ANSWER}%s\\n' "$*"; exit 0; }}
inspect() {{
  for name in "$1" "$2"; do
    $runtime image inspect --format '{{{{.Id}}}} {{{{json .RepoDigests}}}}' -- "$name" 2> /dev/null &&
      return
  done
  return 1
}}
command -v $runtime > /dev/null || say failed neither docker nor podman is installed
case $1 in *@*) found=$(inspect "$1" "$2") && say image "$found" ;; esac
if [ -n "$4" ]; then
  login=$(mktemp -d /dev/shm/gpuctl-login.XXXXXX)
  trap 'rm -rf "$login"' EXIT
  export DOCKER_CONFIG="$login" REGISTRY_AUTH_FILE="$login/config.json"
  said=$($runtime login --username "$4" --password-stdin -- "$3" 2>&1 > /dev/null) ||
    say failed "$3 refused the login of $4: $(printf '%s' "$said" | tail -n 1)"
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
"""Folders of EFA's libraries in EFA's installer, Debian's packages and AWS's images, searched after
LD_LIBRARY_PATH (aws-efa.md section 3, 2026-11-20)."""

# Uses builtins of bash alone, so that the image needs no other program for the check.
_FIND_PARTS = f"""\
if command -v python3 > /dev/null; then echo python3; fi
IFS=: read -ra places <<< "$LD_LIBRARY_PATH"
for place in "${{places[@]}}" {" ".join(_FOLDERS)}; do
  if compgen -G "$place/libfabric.so*" > /dev/null; then echo libfabric; fi
  if compgen -G "$place/libnccl-net*.so*" > /dev/null; then echo plugin; fi
done
exit 0
"""

# Their launchers start processes on other nodes with gpuctl's remote agent (Python, in the image).
_LAUNCHERS = ("mpi", "nccl-tests", "horovod", "deepspeed")


_IMAGE_ID = r"^[A-Za-z0-9][A-Za-z0-9:_.-]{0,127}$"
_NAMES: Any = list[Annotated[str, Pattern(r"^[A-Za-z0-9][!-~]{0,511}$")]] | None


@dataclass(frozen=True)
class _NodeImage:
    """An image on a node: its hash, and its names in registries (`REPOSITORY@DIGEST`)."""

    id: str
    names: frozenset[str]


class _NotPulled(RunError):
    """A node without the image that could not pull it; the message is only the runtime's reason."""


async def pull(
    plan: LaunchPlan, inventory: Inventory, secrets: Mapping[str, str], report: Reporter
) -> LaunchPlan:
    """Pull the plan's image on all its nodes, check it, and return the plan with its image pinned.

    Nodes pull at the same time; progress has the stage `pull`. A node that cannot pull uses an
    image of that name that it has already. A plan without an image is returned unchanged. The
    plan's warnings name parts that the image lacks and the run can do without. Raises RunError if
    a node has no image, if nodes have different images, or if the image lacks a necessary part;
    NodeError if a node cannot be reached.
    """
    image = plan.image
    if image is None:
        return plan
    names = {node.name for node in plan.nodes}
    nodes = [node for node in inventory.nodes if node.name in names]
    password = secrets[image.password_secret] if image.password_secret else ""
    async with connect(inventory) as connections:

        async def on(node: Node) -> _NodeImage:
            return await _pull(connections, node, image, password, report)

        common = _common_image(image, nodes, await on_each(nodes, on))
        pinned = replace(image, id=common.id, digest=_digest(image, common))
        missing = await _missing_parts(connections, nodes[0], plan, pinned)
    return replace(
        plan, image=pinned, warnings=(*plan.warnings, *_check_missing(plan, image, missing))
    )


def qualify_reference(reference: str) -> str:
    """Return the reference with its registry, as Docker reads it (`docker.io/library/debian`).

    A first part with a dot or a colon, or `localhost`, is a registry. An image without a folder is
    in `library` of Docker Hub (https://pkg.go.dev/github.com/distribution/reference, 2026-11-20).
    """
    first, slash, _ = reference.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"


def repository(reference: str) -> str:
    """Return the qualified reference without tag and digest: `docker.io/library/debian`."""
    name = qualify_reference(reference).partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


async def _pull(
    connections: KeptConnections, node: Node, image: ImagePlan, password: str, report: Reporter
) -> _NodeImage:
    report(Progress(_STAGE, node.name, "start", image.reference))
    full = qualify_reference(image.reference)
    words = (full, image.reference, full.partition("/")[0], image.username)
    command = shlex.join(["bash", "-c", _PULL, "pull", *words])
    layers, last_line, answer = 0, "no reason given", ""
    async with aclosing(connections.lines(node, command, stdin=password or None)) as lines:
        async for line in lines:
            if line.startswith(_ANSWER):
                answer = line.removeprefix(_ANSWER)
            elif line.strip():
                last_line = line.strip()
                if last_line.startswith("Copying blob") or last_line.endswith("Pull complete"):
                    layers += 1
                    report(Progress(_STAGE, node.name, "running", f"layer {layers}"))
    outcome, _, rest = answer.partition(" ")
    reason = rest if outcome == "failed" and rest else last_line
    reason = reason.removeprefix("Error: ").rstrip(",")
    if outcome not in {"image", "there"}:
        report(Progress(_STAGE, node.name, "failed", reason))
        raise _NotPulled(reason, "")
    identity, _, text = rest.partition(" ")
    try:
        names: list[str] | None = parse_foreign(_NAMES, text)
        if not is_valid(identity, _IMAGE_ID):
            raise Malformed("its id is none")  # noqa: TRY301
    except Malformed as error:
        raise NodeError(f"{node.name} gave a wrong answer about its image: {error}", "") from None
    detail = identity.removeprefix("sha256:")[:12]
    if outcome == "there":
        detail += f", already on the node; not pulled: {reason}"
    report(Progress(_STAGE, node.name, "done", detail))
    return _NodeImage(identity, frozenset(names or ()))


def _common_image(
    image: ImagePlan, nodes: Sequence[Node], answers: Mapping[int, _NodeImage | GpuctlError]
) -> _NodeImage:
    """Return the image that all nodes have; RunError if one has none or if they differ."""
    broken = [answer for answer in answers.values() if isinstance(answer, GpuctlError)]
    for error in broken:
        if not isinstance(error, _NotPulled):
            raise error
    if broken:
        reasons = {rank: e.message for rank, e in answers.items() if isinstance(e, GpuctlError)}
        per_node = "; ".join(f"{g.names}: {g.answer}" for g in fold_answers(nodes, reasons))
        raise RunError(
            f"image {image.reference} cannot be pulled: {per_node}",
            f"correct `image`, set `registry_auth`, or {_ON_THE_HOST}",
        )
    images = {rank: answer for rank, answer in answers.items() if isinstance(answer, _NodeImage)}
    ids = {rank: answer.id.removeprefix("sha256:")[:12] for rank, answer in images.items()}
    if len(set(ids.values())) > 1:
        per_node = ", ".join(f"{g.names} {g.answer}" for g in fold_answers(nodes, ids))
        raise RunError(
            f"image {image.reference} is not the same on all nodes: {per_node}",
            "use its digest (`image: REPOSITORY@sha256:…`), or remove old images from the nodes",
        )
    names = frozenset.intersection(*(answer.names for answer in images.values()))
    return _NodeImage(next(iter(images.values())).id, names)


def _digest(image: ImagePlan, common: _NodeImage) -> str | None:
    """Return the image's digest in its registry; None for an image without a registry."""
    names = (n for n in common.names if repository(n) == repository(image.reference))
    digests = sorted(name.partition("@")[2] for name in names)
    written = qualify_reference(image.reference).partition("@")[2]
    return written or (digests[0] if digests else None)


async def _missing_parts(
    connections: KeptConnections, node: Node, plan: LaunchPlan, image: ImagePlan
) -> tuple[str, ...]:
    """Return what the run needs and the image lacks, of bash, python3 and EFA's libraries."""
    start = "run --rm --pull=never --network=none --user=0:0 --entrypoint=bash"
    command = (
        f"{CHOOSE_RUNTIME}$runtime {start} {shlex.quote(image.id)} -c {shlex.quote(_FIND_PARTS)}"
    )
    done = await connections.run(node, command, timeout=CHECK_S)
    if done.exit_status == 127:
        return ("bash",)
    if done.exit_status != 0:
        stderr = done.stderr.strip() or "no reason given"
        reason = stderr.splitlines()[-1].removeprefix("Error: ")
        raise RunError(
            f"image {image.reference} cannot be run on {node.label}: {reason}",
            "log in with"
            f" {command_text('gpuctl ssh {} {}', plan.cluster, node.name)}, or {_ON_THE_HOST}",
        )
    has = done.stdout.split()
    missing = []
    if "python3" not in has and _uses_agent(plan) and len(plan.nodes) > 1:
        missing.append("python3")
    if plan.network.promises == "efa" and plan.network.verify != "off":
        missing += [] if "libfabric" in has else [_LIBFABRIC]
        missing += [] if "plugin" in has else [_PLUGIN]
    return tuple(missing)


def _uses_agent(plan: LaunchPlan) -> bool:
    """Return whether the run goes to other nodes by the remote agent, as manifests' mpirun does."""
    return plan.type in _LAUNCHERS or any("RUN_FOLDER/bin/ssh" in n.script for n in plan.nodes)


def _check_missing(plan: LaunchPlan, image: ImagePlan, missing: Sequence[str]) -> tuple[str, ...]:
    """Return warnings about what the image lacks; RunError if the run cannot do without it."""
    if "bash" in missing:
        raise RunError(
            f"image {image.reference} has no bash, which runs the commands",
            f"add it to the image, or {_ON_THE_HOST}",
        )
    if "python3" in missing:
        who = plan.type if plan.type in _LAUNCHERS else "mpirun"
        raise RunError(
            f"image {image.reference} has no python3, which {who} needs to reach other nodes",
            f"add it to the image, or {_ON_THE_HOST}",
        )
    if not missing:
        return ()
    where = f"searched LD_LIBRARY_PATH, {', '.join(_FOLDERS)}"
    message = f"image {image.reference} has no {' and no '.join(missing)} for EFA: {where}"
    if plan.network.verify == "warn":
        return (f"{message}; NCCL will use sockets",)
    raise RunError(
        message, f"add them to the image, set `network: tcp` in a run file, or {_ON_THE_HOST}"
    )
