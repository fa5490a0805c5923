"""The workspace of a cluster's stack: its folders on this machine, its backend, its environment."""

import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pulumi import automation

from config.bucket import engine_url
from config.errors import InfraError
from config.files import write_new
from config.folders import cache_home, user_path
from config.target import Target
from infra.stack.plugins import NO_DOWNLOADS

PROJECT = "gpuctl"
_PROJECT_FILE = f"name: {PROJECT}\nruntime: python\n"
_PASSPHRASE = "gpuctl"  # noqa: S105  (it protects nothing)
_STACK_FILE = (
    "encryptionsalt: v1:MYQ0pHQBVu4=:v1:pHP7r23fvq8GlYkA:G+O74L5EgOGyzMBvODagbs6f0AYHtw==\n"
)
"""A stack's settings as the Pulumi engine writes them for _PASSPHRASE.

The engine requires a passphrase for every stack, although gpuctl keeps no secret in Pulumi. It is
the same everywhere, and so is the salt: the settings of every machine fit every stack, also one of
a colleague in a bucket.
"""


def folder(name: str, target: Target) -> Path:
    """Return the folder with the project's settings for the stack, and with its plans."""
    return target.state / "pulumi-project" / name


def workspace_options(
    name: str, target: Target, command: automation.PulumiCommand
) -> automation.LocalWorkspaceOptions:
    """Return the options of the workspace for the stack `name`; create its folders."""
    backend = backend_folder(target)
    if backend is not None:
        backend.mkdir(parents=True, exist_ok=True)
    home = _home(name, target)
    # The SDK would write these files in each command, while the engine of another one reads them.
    for file, text in {"Pulumi.yaml": _PROJECT_FILE, f"Pulumi.{name}.yaml": _STACK_FILE}.items():
        path = folder(name, target) / file
        if not path.exists():
            write_new(path, text)
    return automation.LocalWorkspaceOptions(
        work_dir=str(folder(name, target)),
        pulumi_home=str(home),
        env_vars=_environment(target),
        pulumi_command=command,
    )


def _home(name: str, target: Target) -> Path:
    """Create and return the Pulumi engine's home folder for the stack.

    The Pulumi engine logs each operation there (`logs/`,
    https://github.com/pulumi/pulumi/pull/23731, 3.258.0 cannot switch it off) and notes the chosen
    stack. The folder is removed with the stack. Plugins have hundreds of megabytes, so all stacks
    share them.
    """
    home, plugins = folder(name, target) / "home", cache_home() / "pulumi" / "plugins"
    home.mkdir(parents=True, exist_ok=True)
    plugins.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # an earlier or concurrent command created it
        (home / "plugins").symlink_to(plugins)
    return home


def remove_files(name: str, target: Target) -> None:
    """Remove the stack's folder, and what Pulumi left of the stack in the backend's folder.

    Pulumi leaves a state that it cannot read, and the files that a killed Pulumi engine was about
    to rename: `demo.json.bak.18eabbe28120e809.tmp` (gocloud.dev's fileblob, seen with 3.258.0 on
    2026-11-23).
    """
    shutil.rmtree(folder(name, target), ignore_errors=True)  # the next `up` clears what stays
    backend = backend_folder(target)
    if backend is None:
        return
    for path in (backend / ".pulumi" / "stacks" / PROJECT).glob(f"{name}.json*"):
        path.unlink(missing_ok=True)
    # `**` would fail on folders of other stacks that end meanwhile.
    for above in ("*", "*/*"):
        for empty in backend.glob(f".pulumi/{above}/{PROJECT}/{name}"):
            for torn in empty.glob("*.tmp"):
                torn.unlink(missing_ok=True)
            with suppress(OSError):  # it may contain another client's lock
                empty.rmdir()


def backend_folder(target: Target) -> Path | None:
    """Return the folder that is the backend, or None for a backend elsewhere."""
    backend = urlsplit(target.backend_url)
    if backend.scheme != "file":
        return None
    return user_path(url2pathname(backend.path))


def backend_url(target: Target) -> str:
    """Return the backend's URL for the Pulumi engine.

    If the backend is a folder, the Pulumi engine writes a file of attributes for each file. It does
    not write that file atomically: if it is killed meanwhile, it leaves an empty file, and then
    cannot read its state ("failed to load checkpoint: EOF", seen with 3.258.0 on 2026-11-20).
    `metadata=skip` of gocloud.dev's fileblob omits the attributes, which Pulumi does not use.
    """
    url = target.backend_url
    if target.bucket is not None:
        return engine_url(url, target.region, target.endpoint)
    if not url.startswith("file://") or "?" in url:
        return url
    return f"{url}?metadata=skip"


def _environment(target: Target) -> dict[str, str]:
    """Return the variables that the Pulumi engine and its plugins get in addition to ours."""
    environment = {
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_BACKEND_URL": backend_url(target),
        "PULUMI_CONFIG_PASSPHRASE": _PASSPHRASE,
        "AWS_REGION": target.region,
        **NO_DOWNLOADS,
        **target.environment,
    }
    if target.provider_address is not None:
        host, _, port = target.provider_address.rpartition(":")
        if host not in ("127.0.0.1", "localhost"):
            raise InfraError(
                f"the provider's address is {target.provider_address}, and must be on loopback",
                "the Pulumi engine can use only a provider on this machine",
            )
        environment["PULUMI_DEBUG_PROVIDERS"] = f"aws:{port}"
    return environment
