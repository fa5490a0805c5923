"""The commands of dstack's task as those of a run file.

What dstack's server and runner do around them is put before the first one, so that every entry
keeps its number (server/services/jobs/configurators/base.py and runner/internal/runner/executor of
dstackai/dstack@511c318c, 2026-08-21).
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from config.command_rules import entry_mistakes
from config.mistakes import Path
from config.run.container_fields import IMAGE_START
from config.yaml.hints import choice_hint, describe_value
from formats.dstack.dstack_file import DstackFile
from formats.dstack.references import command_text

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")

_UV = "0.13.8"
_WHEELS = "https://files.pythonhosted.org/packages"
_UV_X86 = (
    f"{_WHEELS}/c5/32/52ee34636aea1ab3f8baeeae1c3599461b8cddfb379862cc72ac61b8d91c/uv-{_UV}"
    "-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984",
)
_UV_ARM = (
    f"{_WHEELS}/9e/f0/d989ac5fcebf83f1c8c5d78974f27788e8364945969eb646f5d0db35d924/uv-{_UV}"
    "-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
    "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",
)
"""uv's wheels and their sha256, as in scripts/uv.txt (https://pypi.org/simple/uv, 2026-11-22)."""

# uv is kept on the node for later runs; two runs that fetch it at once do not disturb each other.
# Python fetches it: Debian's minimal images have no curl.
_FETCH_UV = f"""\
gpuctl_fetch='import sys, urllib.request
try:
    urllib.request.urlretrieve(*sys.argv[1:])
except OSError as error:
    sys.exit(f"gpuctl: {{sys.argv[1]}}: {{error}}")'
gpuctl_uv=/var/lib/gpuctl/uv-{_UV}
if ! command -v uv >/dev/null && ! [ -x "$gpuctl_uv/uv" ]; then
  case "$(uname -m)" in
    x86_64) gpuctl_url={_UV_X86[0]} gpuctl_sum={_UV_X86[1]} ;;
    *) gpuctl_url={_UV_ARM[0]} gpuctl_sum={_UV_ARM[1]} ;;
  esac
  gpuctl_new=$(mktemp -d "$gpuctl_uv.XXXXXX") &&
    python3 -I -c "$gpuctl_fetch" "$gpuctl_url" "$gpuctl_new/uv.whl" &&
    echo "$gpuctl_sum  $gpuctl_new/uv.whl" | sha256sum --check --status &&
    python3 -m zipfile -e "$gpuctl_new/uv.whl" "$gpuctl_new" && mkdir -p "$gpuctl_uv" &&
    install -m 755 "$gpuctl_new/uv-{_UV}.data/scripts/uv" "$gpuctl_uv/uv"
  rm -rf "$gpuctl_new"
  if ! [ -x "$gpuctl_uv/uv" ]; then
    echo "gpuctl: $GPUCTL_NODE_NAME has no uv, and cannot get it from files.pythonhosted.org" >&2
    exit 127
  fi
fi
export PATH="$PATH:$gpuctl_uv"
"""
# uv trusts the node's certificates, as pip does: a company's proxy may need another one.
# https://docs.astral.sh/uv/concepts/authentication/certificates/ (2026-11-23)
_ENVIRONMENT = """\
export UV_SYSTEM_CERTS="${{UV_SYSTEM_CERTS-true}}"
uv venv --quiet --seed{python} "$GPUCTL_RUN_FOLDER/venv-$GPUCTL_NODE_RANK" || exit
. "$GPUCTL_RUN_FOLDER/venv-$GPUCTL_NODE_RANK/bin/activate"
"""
_NVCC = """\
export PATH="$PATH:/usr/local/cuda/bin"
if ! command -v nvcc >/dev/null; then
  echo "gpuctl: $GPUCTL_NODE_NAME has no nvcc; take an \\`image\\` of a cluster file with CUDA" >&2
  exit 127
fi
"""
_DOCKER = """\
if ! docker info >/dev/null 2>&1; then
  echo "gpuctl: no docker answers on $GPUCTL_NODE_NAME; take a dlami image, or install it" >&2
  exit 127
fi
"""

_ROOT = ("", "root", "0", "0:0", "root:root", "0:root", "root:0")
_NAMES_UV = re.compile(r"(^|[\s;&|(])(uv|pip3?)(\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Surroundings:
    """The settings of a task around its commands; `before` is bash that runs before them."""

    has_image: bool
    folder: str
    shell: str
    user: str
    entrypoint: str
    before: str


def surroundings(reading: DstackFile, before: Sequence[str]) -> Surroundings:
    """Return the surroundings of the task, and report what is wrong with them.

    `before` are lines of bash that run before its commands.
    """
    has_image = bool(reading.text(("image",)))
    for key in ("python", "nvcc", "docker") if has_image else ():
        if reading.get((key,)) not in (None, False):
            message = f"'{key}' and 'image' exclude each other"
            reading.complain("E223", message, "remove one of them", (key,), on_key=True)
    shell = reading.text(("shell",))
    if shell and shell not in ("sh", "bash") and not shell.startswith("/"):
        message = f"'shell' is {describe_value(shell)}, which is not allowed"
        reading.complain("E201", message, "write sh, bash or the shell's whole path", ("shell",))
    text = "".join(f"{line}\n" for line in before)
    if not has_image and not reading.text(("entrypoint",)):
        text += _python(reading)
        text += _NVCC if reading.flag(("nvcc",)) else ""
        text += _DOCKER if reading.flag(("docker",)) else ""
    return Surroundings(
        has_image=has_image,
        folder=reading.text(("working_dir",)),
        shell="" if shell in ("", "bash") else shell,
        user=reading.text(("user",)),
        entrypoint=reading.text(("entrypoint",)),
        before=text,
    )


def _python(reading: DstackFile) -> str:
    """Return the lines that make an environment with the task's Python.

    Without `python` they are there only if a command names uv or pip: dstack's image has both.
    """
    version = reading.text(("python",))
    if version and version not in PYTHONS:
        message = f"'python' is {describe_value(version)}, which is not allowed"
        reading.complain("E201", message, choice_hint(version, PYTHONS), ("python",))
        return ""
    if not version and not _NAMES_UV.search("\n".join(_all_commands(reading))):
        return ""
    return _FETCH_UV + _ENVIRONMENT.format(python=f" --python {version}" if version else "")


def _all_commands(reading: DstackFile) -> list[str]:
    groups = range(len(reading.entries(("groups",))))
    at: list[Path] = [("commands",), *(("groups", index, "commands") for index in groups)]
    return [text for path in at for text in _plain(reading, path)]


def _plain(reading: DstackFile, at: Path) -> list[str]:
    """Return the texts of a list; other values are reported where they are used."""
    value = reading.get(at)
    return [text for text in value if isinstance(text, str)] if isinstance(value, tuple) else []


def commands(
    reading: DstackFile, at: Path, around: Surroundings, groups: tuple[int, ...], name: str
) -> list[str]:
    """Return the commands of the list at `at` as those of a run file; none if there is nothing."""
    count = len(reading.entries(at))
    texts = [command_text(reading, (*at, index), groups, name) for index in range(count)]
    texts = [text for text in texts if text.strip()]
    if around.shell or around.user not in _ROOT:  # else the run's own commands are checked
        reading.mistakes += entry_mistakes(tuple(texts), at)
    if around.entrypoint:
        texts = _entrypoint(reading, around.entrypoint, texts)
    elif not texts:
        texts = [IMAGE_START] if around.has_image else []
    elif around.shell:
        texts = [f"exec {shlex.quote(_program(around.shell))} -c {shlex.quote(_joined(texts))}"]
    if around.user not in _ROOT and texts:
        texts = [_as_user(around.user, texts)]
    before = around.before + _change_folder(around)
    return [before + texts[0], *texts[1:]] if texts else []


def _entrypoint(reading: DstackFile, entrypoint: str, arguments: list[str]) -> list[str]:
    try:
        words = shlex.split(entrypoint)
    except ValueError as error:
        message = f"'entrypoint' is {describe_value(entrypoint)}: {error}"
        reading.complain("E203", message, "write the words of one command", ("entrypoint",))
        return []
    return [f"exec {shlex.join([*words, *arguments])}"]


def _program(shell: str) -> str:
    return shell if shell.startswith("/") else f"/bin/{shell}"


def _joined(texts: Sequence[str]) -> str:
    """Return the commands as one text, which any shell runs up to the first that fails."""
    return " && ".join(f"{{ {text.strip()}\n}}" for text in texts)


def _as_user(user: str, texts: Sequence[str]) -> str:
    """Return the command that runs the commands as the user, with the user's home."""
    name, _, group = user.partition(":")
    quoted = shlex.quote(name)
    gid = shlex.quote(group) if group else f'"$(id -g {quoted} 2>/dev/null || echo 0)"'
    groups = "--clear-groups" if name.isdecimal() or group else "--init-groups"
    home = f'HOME="$(getent passwd {quoted} | cut -d: -f6)"'
    change = f"setpriv --reuid {quoted} --regid {gid} {groups}"
    return f"exec env {home} {change} bash -c {shlex.quote(_joined(texts))}"


def _change_folder(around: Surroundings) -> str:
    """Return the line that goes to the task's folder, from the image's or the home."""
    if not around.folder:
        return ""
    folder = shlex.quote(around.folder)
    if around.folder == "~" or around.folder.startswith("~/"):
        folder = f'"$HOME"{shlex.quote(around.folder[1:])}' if around.folder[1:] else '"$HOME"'
    return f"mkdir -p -- {folder} && cd -- {folder} || exit\n"
