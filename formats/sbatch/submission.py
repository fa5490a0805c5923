"""What sbatch takes from where it is called: the environment, and the folder of the job.

By default everything of the submitter's environment travels (sbatch(1), `--export`). On a cluster
of Slurm the nodes are like the machine of the submitter; nodes of AWS are not. So variables that
describe this machine or this login stay, and what looks secret travels only if the script names it.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from config.run.env import NAME_FORM
from config.run.owned_variables import owner
from config.sensitive import is_secret_name, may_leave_as_text
from formats.converted import Placed
from formats.sbatch.batch_file import BatchFile

_OF_THIS_MACHINE = re.compile(
    r"PATH|HOME|USER|LOGNAME|USERNAME|SHELL|SHLVL|PWD|OLDPWD|_|MAIL|HOST|HOSTNAME|HOSTTYPE|OSTYPE"
    r"|MACHTYPE|TERM|TERM_.*|TERMINFO|COLORTERM|COLORFGBG|COLUMNS|LINES|LANG|LANGUAGE|LC_.*|TZ"
    r"|DISPLAY|WAYLAND_.*|XAUTHORITY|XDG_.*|DBUS_.*|DESKTOP_.*|GNOME_.*|GTK_.*|QT_.*|KDE_.*|SESSION.*"
    r"|WINDOWID|VTE_.*|ITERM_.*|LC_TERMINAL.*|TMUX.*|STY|SSH_.*|GPG_.*|SUDO_.*|LS_COLORS|LSCOLORS"
    r"|LESS.*|PAGER|EDITOR|VISUAL|HIST.*|PS[0-4]|PROMPT_.*|ZSH.*|BASH.*|ENV|IFS|TMP|TEMP|TMPDIR"
    r"|MANPATH|INFOPATH|INFODIR|LD_.*|DYLD_.*|LIBRARY_PATH|CPATH|PKG_CONFIG.*|ACLOCAL_PATH|CMAKE_.*"
    r"|PYTHON.*|VIRTUAL_ENV.*|CONDA.*|_CE_.*|MAMBA.*|PYENV.*|NVM_.*|NODE_PATH|GOPATH|GOROOT|CARGO_.*"
    r"|RUSTUP_.*|JAVA_HOME|HOMEBREW_.*|LMOD.*|__LMOD.*|_LMFILES_.*|LOADEDMODULES|MODULE.*|EB.*|NIX_.*"
    r"|GIT_.*|VSCODE.*|ELECTRON.*|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_.*|MANAGERPID|DEBIAN_FRONTEND"
    r"|.*_PROXY|AWS_.*|GPUCTL_.*|DSTACK_.*|SLURM_.*|SBATCH_.*|SRUN_.*|PYTEST.*|CI|COV_.*|UV|UV_.*"
    r"|CUDA_VISIBLE_DEVICES|NVIDIA_.*|OMPI_.*|PMIX_.*|PRTE_.*|PMI_.*|HYDRA_.*|I_MPI_.*"
    r"|CLAUDE.*|OPENAI_.*BASE.*|container|no_proxy|.*_proxy",
)
"""Variables of a machine, a login, a terminal or a tool that is installed here."""


def environment(reading: BatchFile) -> dict[str, Any]:
    """Return the variables of the submitter that travel, and those that `--export` sets."""
    at = reading.at("export")
    words = [word for word in reading.option("export").split(",") if word]
    everything = not words or any(word.upper() == "ALL" for word in words)
    variables: dict[str, Any] = {}
    if len(words) == 1 and words[0].upper() in ("NONE", "NIL"):
        return {"SLURM_EXPORT_ENV": Placed(words[0], at)}
    for word in words:
        name, equals, text = word.partition("=")
        if name.upper() == "ALL" and not equals:
            continue
        if not re.fullmatch(NAME_FORM, name):
            reading.complain("E207", f"'{name}' names no variable", "write NAME or NAME=value", at)
        elif name in os.environ and (everything or not equals):
            variables[name] = Placed(_value(name, os.environ), at)
        elif equals:
            variables[name] = Placed(text.replace("${", "$${"), at)
    if everything:
        variables = _submitters(reading.script) | variables
    else:
        variables["SLURM_EXPORT_ENV"] = Placed(reading.option("export"), at)
    return {name: value for name, value in variables.items() if owner("task", name) is None}


def _submitters(script: str) -> dict[str, Any]:
    """Return the environment of this process without what belongs to this machine."""
    named = set(re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", script))
    return {
        name: _value(name, os.environ)
        for name, text in sorted(os.environ.items())
        if re.fullmatch(NAME_FORM, name)
        and not _OF_THIS_MACHINE.fullmatch(name)
        and text
        and (name in named or may_leave_as_text(name, text))
    }


def _value(name: str, environ: Mapping[str, str]) -> Any:
    text = environ[name]
    if is_secret_name(name) or not may_leave_as_text(name, text):
        return {"secret": name}
    return text.replace("${", "$${")
