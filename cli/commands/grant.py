"""`gpuctl grant CLUSTER [KEY]`: give a colleague access to a cluster, or list who has it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodes.public_keys import PublicKey
    from provision.records.record import Grant


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
    from nodes.names import fold
    from provision.access import grant as give
    from provision.access import members

    target, out = chosen_target(context).cluster_target(cluster), output(context)
    if key is None:
        own, others = members(cluster, target)
        out.show(
            {"cluster": cluster, "keys": _documents(own, others)}, _lines(cluster, own, others)
        )
        return
    done = give(cluster, key, target)
    lines = [
        f"{one.name} ({one.fingerprint}) has access to {cluster}: {fold(done.machines)}"
        for one in done.keys
    ]
    document = {
        "cluster": cluster,
        "keys": [{"name": one.name, "fingerprint": one.fingerprint} for one in done.keys],
        "machines": list(done.machines),
    }
    out.show(document, lines)


def _documents(own: "PublicKey", others: "Sequence[Grant]") -> list[dict[str, Any]]:
    from nodes.public_keys import fingerprint

    documents: list[dict[str, Any]] = [
        {"name": own.name, "fingerprint": own.fingerprint, "key": own.key, "own": True}
    ]
    documents += (
        {
            "name": key.name,
            "fingerprint": fingerprint(key.key),
            "key": key.key,
            "own": False,
            "since": key.since.isoformat(timespec="seconds"),
            "revoked": key.is_revoked,
            "unconfirmed": list(key.open),
        }
        for key in others
    )
    return documents


def _lines(cluster: str, own: "PublicKey", others: "Sequence[Grant]") -> list[str]:
    from nodes.names import fold
    from nodes.public_keys import fingerprint

    rows = [(own.name, own.fingerprint, "gpuctl's own key")]
    for key in others:
        state = "revoked" if key.is_revoked else f"since {key.since:%Y-%m-%d %H:%M} UTC"
        if key.open:
            state += f", not confirmed by {fold(key.open)}"
        rows.append((key.name, fingerprint(key.key), state))
    widest = max(len(name) for name, _, _ in rows)
    lines = [f"{name:<{widest}}  {digest}  {state}" for name, digest, state in rows]
    return lines if others else [*lines, f"`gpuctl grant {cluster} KEY.pub` gives access"]
