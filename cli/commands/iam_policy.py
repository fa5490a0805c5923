"""`gpuctl iam-policy`: the least permissions that commands need, as an IAM policy."""

import re
from pathlib import Path
from typing import Annotated

import typer

from cli.options import chosen_target, output
from config.errors import InputError


def iam_policy(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[CLUSTER.yaml]", help="Only what this cluster needs."),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="COMMAND,…", help="Only what these commands need: up,down,status,…"
        ),
    ] = None,
    boundary: Annotated[
        bool,
        typer.Option(
            "--boundary",
            help="Print the permissions boundary of the nodes' roles instead: the most that they"
            " may do.",
        ),
    ] = False,
    instance_profile: Annotated[
        str | None,
        typer.Option(
            "--instance-profile",
            metavar="NAME",
            help="Nodes get this instance profile, which an administrator made; the policy allows"
            " to create no role.",
        ),
    ] = None,
) -> None:
    """Print the least IAM policy that commands need; it calls no API.

    Changes are limited to resources with gpuctl's tag. Without --for it is the policy of all
    commands. If it is longer than IAM allows, the document is a list of policies. If your settings
    name a bucket (`backend`), the policy allows its use.

    Roles can be created only with the permissions boundary gpuctl-boundary, which an administrator
    creates once with the document of --boundary.

    $ gpuctl iam-policy > policy.json
    $ gpuctl iam-policy --boundary > boundary.json
    $ gpuctl iam-policy cluster.yaml --for up,down,status
    """
    from dataclasses import replace

    from config.bucket import bucket_of
    from config.cluster.cluster_file import FORMS, PROFILE
    from config.loading.load import load_cluster
    from provision.permissions.actions import FEATURES, features_of, needed
    from provision.permissions.boundary import boundary_document
    from provision.permissions.policy import policy, split

    if boundary:
        if file is not None or for_ is not None or instance_profile is not None:
            raise InputError(
                "--boundary is one document for every cluster and command",
                "leave the file, --for and --instance-profile out",
            )
        replace(output(context), as_json=True).show(boundary_document(), ())
        return
    features = frozenset(FEATURES)
    if file is not None:
        cluster = load_cluster(file)
        instance_profile = instance_profile or cluster.instance_profile
        features = features_of(cluster)
    if instance_profile is not None:
        if not re.fullmatch(PROFILE, instance_profile):
            raise InputError(
                f"--instance-profile: '{instance_profile}' is no name of an instance profile",
                f"write {FORMS[PROFILE]}",
            )
        features = features - {"role"} | {"profile"}
    bucket = bucket_of(chosen_target(context).backend)
    parts = split(policy(needed(_commands(for_), features), bucket, instance_profile))
    document = parts[0] if len(parts) == 1 else list(parts)
    replace(output(context), as_json=True).show(document, ())


def _commands(named: str | None) -> tuple[str, ...]:
    from provision.permissions.actions import COMMANDS

    if named is None:
        return COMMANDS
    chosen = tuple(name for name in named.replace(" ", "").split(",") if name)
    if unknown := sorted(set(chosen) - set(COMMANDS)):
        raise InputError(
            f"--for: {unknown[0]} needs no permissions, or is no command",
            f"choose from {', '.join(COMMANDS)}",
        )
    if not chosen:
        raise InputError("--for names no command", f"choose from {', '.join(COMMANDS)}")
    return chosen
