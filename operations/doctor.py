"""What gpuctl sees of engine, backend, credentials, permissions and lab, with remedies."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from config.bucket import bucket_of
from config.errors import GpuctlError
from config.quantities import counted
from config.target import Target
from infra.stack.installation import REMEDY, installed_engine, missing_engine
from lab import lifecycle, prerequisites
from operations.chosen_target import ChosenTarget
from provision.aws.account import caller, credentials_source
from provision.permissions.actions import COMMANDS, FEATURES, needed
from provision.permissions.check import RoleOfNodes, missing_permissions
from provision.permissions.policy import CREATE, find_boundary
from provision.setup.session_manager import (
    INSTALL,
    plugin_problem,
    plugin_version,
    version_text,
)
from provision.state.shared import try_bucket


@dataclass(frozen=True)
class Check:
    """A check of one part; `remedy` is empty where nothing is to be done.

    `needed` says whether commands on this target (AWS, or the lab with --lab) fail without it.
    """

    name: str
    seen: str
    remedy: str = ""
    needed: bool = True


def checks(chosen: ChosenTarget) -> Iterator[Check]:
    """Yield a check of each part that gpuctl needs, or that only some commands need."""
    yield engine_check()
    yield _backend(chosen)
    yield _credentials(chosen)
    yield from _proxies(chosen)
    yield from _permissions(chosen)
    yield _session_plugin(chosen)
    yield from _lab(chosen)


def engine_check() -> Check:
    """Check Pulumi's engine: the one that commands use, or what they do without one."""
    name = "Pulumi's engine"
    try:
        engine = installed_engine()
    except GpuctlError as error:
        return Check(name, error.message, error.hint)
    if engine is not None:
        return Check(name, f"{engine.path} {engine.version}")
    remedy = "the first command that needs it downloads it; if get.pulumi.com is closed, "
    return Check(name, missing_engine(), remedy + REMEDY, needed=False)


def _backend(chosen: ChosenTarget) -> Check:
    """Check that this machine can use the team's bucket as commands do, if there is one."""
    where = chosen.backend or (chosen.state / "pulumi").as_uri()
    if bucket_of(where) is None or chosen.is_lab_down():
        return Check("backend", where)
    try:
        count = try_bucket(chosen.remembered())
    except GpuctlError as error:
        return Check("backend", error.message, error.hint)
    return Check("backend", f"{where}: {counted(count, 'shared cluster')}")


def _credentials(chosen: ChosenTarget) -> Check:
    if chosen.lab:
        return Check("credentials", "of the lab")
    try:
        target = chosen.target()
        who, way = caller(target), credentials_source(target)
    except GpuctlError as error:
        return Check("credentials", error.message, error.hint)
    return Check("credentials", f"account {who.account}, {who.arn} ({way}), {target.region}")


_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY")


def _proxies(chosen: ChosenTarget) -> Iterator[Check]:
    """Show the proxies of the environment, through which AWS is reached; without their passwords.

    The lab, ssh and Pulumi's engine on this machine are reached directly.
    """
    given = {name: os.environ[name] for name in _PROXIES if os.environ.get(name)}
    if given and not chosen.lab:
        shown = (f"{name}={re.sub('[^/@]*@', '***@', value)}" for name, value in given.items())
        yield Check("proxies", f"AWS and downloads: {', '.join(shown)}", needed=False)


def _permissions(chosen: ChosenTarget) -> Iterator[Check]:
    """Check which actions the credentials do not allow; nothing if AWS does not know them."""
    if chosen.is_lab_down():
        return
    try:
        target = chosen.target()
        who = caller(target)
    except GpuctlError:
        return  # the line about credentials has the reason
    nodes = RoleOfNodes()
    basic = needed(COMMANDS, ("network",))
    try:
        with suppress(GpuctlError):  # without the permission to ask it counts as missing
            nodes = RoleOfNodes(find_boundary(target, who))
        lacking = missing_permissions(target, who, needed(COMMANDS, FEATURES), nodes)
    except GpuctlError as error:
        remedy = "allow iam:SimulatePrincipalPolicy"
        yield Check("permissions", f"not known: {error.message}", remedy, needed=False)
        return
    remedy = "`gpuctl iam-policy` prints a policy that allows them"
    missing = [action for action in lacking.required if action in basic]
    others = [action for action in lacking.required if action not in basic]
    if not missing:
        yield Check("permissions", "all that every cluster needs")
    else:
        yield Check("permissions", f"missing: {', '.join(missing)}", remedy)
    if others:
        seen = f"missing for Session Manager, shared storage or spot: {', '.join(others)}"
        yield Check("permissions", seen, remedy, needed=False)
    if lacking.unbounded:
        seen = f"missing for Session Manager: {lacking.without_boundary}"
        yield Check("permissions", seen, CREATE, needed=False)
    for warning in lacking.warnings:
        yield Check("permissions", warning, remedy, needed=False)


def _session_plugin(chosen: ChosenTarget) -> Check:
    """Check the Session Manager plugin, which only `network.access: ssm` needs."""
    command = Target.session_plugin
    name = command[0]
    if chosen.lab:
        return Check(name, "of the lab", needed=False)
    problem = plugin_problem(command)
    if problem:
        return Check(name, f"{problem}; network.access: ssm needs it", INSTALL, needed=False)
    version = version_text(plugin_version(command) or ())
    return Check(name, f"{shutil.which(name)} {version}", needed=False)


def _lab(chosen: ChosenTarget) -> Iterator[Check]:
    lacking, is_needed = prerequisites.missing(), chosen.lab is not None
    for each in lacking:
        yield Check(f"lab: {each.name}", each.problem, each.remedy, is_needed)
    if not lacking:
        now = lifecycle.status(chosen.chosen_lab)
        yield Check(
            "lab", f"up at {now.api_url}" if now.up else "down, can start", needed=is_needed
        )
