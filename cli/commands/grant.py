"""`gpuctl grant CLUSTER [KEY]`: give a colleague access to a cluster, or list who has it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from config.command_text import command_text
from config.folded_names import fold
from operations import team

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operations.team import Member


def grant(
    context: typer.Context,
    cluster: ClusterArgument,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="A public key file, the key itself, or the name of a key that was granted before;"
            " without it, who has access is listed.",
        ),
    ] = None,
) -> None:
    """Give a colleague's ssh key access to a cluster.

    The colleague can then use the cluster as you do, as root on its nodes. New nodes get the key
    too. On the colleague's machine, gpuctl logs in with the ssh agent and the keys of ~/.ssh.

    $ gpuctl grant demo ann.pub
    $ gpuctl grant demo
    """
    chosen, out = chosen_target(context), output(context)
    if key is None:
        members = team.members(chosen, cluster)
        document = {"cluster": cluster, "keys": [_document(member) for member in members]}
        out.show(document, _lines(cluster, members))
        return
    access = team.grant(chosen, cluster, key)
    lines = [
        f"{given.name} ({given.fingerprint}) has access to {cluster}: {fold(access.machines)}"
        for given in access.keys
    ]
    document = {
        "cluster": cluster,
        "keys": [{"name": given.name, "fingerprint": given.fingerprint} for given in access.keys],
        "machines": list(access.machines),
    }
    out.show(document, lines)


def _document(member: "Member") -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": member.name,
        "fingerprint": member.fingerprint,
        "key": member.key,
        "own": member.since is None,
    }
    if member.since is not None:
        document |= {
            "since": member.since.isoformat(timespec="seconds"),
            "revoked": member.is_revoked,
            "unconfirmed": list(member.unconfirmed),
        }
    return document


def _lines(cluster: str, members: "Sequence[Member]") -> list[str]:
    widest = max(len(member.name) for member in members)
    lines = [
        f"{member.name:<{widest}}  {member.fingerprint}  {_state(member)}" for member in members
    ]
    has_others = len(members) > 1
    return (
        lines
        if has_others
        else [*lines, f"{command_text('gpuctl grant {} KEY.pub', cluster)} gives access"]
    )


def _state(member: "Member") -> str:
    if member.since is None:
        return "gpuctl's own key"
    state = "revoked" if member.is_revoked else f"since {member.since:%Y-%m-%d %H:%M} UTC"
    if member.unconfirmed:
        state += f", not confirmed by {fold(member.unconfirmed)}"
    return state
