"""`gpuctl iam-policy`: the least permissions that commands need, as an IAM policy."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cli.options import chosen_target, output
from config.cluster import cluster_file
from config.errors import InputError
from config.loading import load
from operations import permissions


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
    out = replace(output(context), as_json=True)
    if boundary:
        if file is not None or for_ is not None or instance_profile is not None:
            raise InputError(
                "--boundary is one document for every cluster and command",
                "leave the file, --for and --instance-profile out",
            )
        out.show(permissions.boundary_document(), ())
        return
    cluster = None if file is None else load.load_cluster(file)
    profile = cluster_file.PROFILE
    if instance_profile is not None and not re.fullmatch(profile, instance_profile):
        raise InputError(
            f"--instance-profile: '{instance_profile}' is no name of an instance profile",
            f"write {cluster_file.FORMS[profile]}",
        )
    parts = permissions.policy_documents(
        chosen_target(context),
        cluster=cluster,
        commands=_commands(for_),
        instance_profile=instance_profile,
    )
    out.show(parts[0] if len(parts) == 1 else list(parts), ())


def _commands(named: str | None) -> tuple[str, ...]:
    """Return the commands of --for, all without it; InputError for an unknown one."""
    known = permissions.COMMANDS
    if named is None:
        return known
    chosen = tuple(name for name in named.replace(" ", "").split(",") if name)
    if unknown := sorted(set(chosen) - set(known)):
        raise InputError(
            f"--for: {unknown[0]} needs no permissions, or is no command",
            f"choose from {', '.join(known)}",
        )
    if not chosen:
        raise InputError("--for names no command", f"choose from {', '.join(known)}")
    return chosen
