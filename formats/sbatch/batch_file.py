"""A batch script while it is read: the options of its header by name, and the mistakes so far.

Its environment and folder are those of where sbatch is called. By default everything of the
submitter's environment travels (sbatch(1), `--export`). On a cluster of Slurm the nodes are like
the machine of the submitter; nodes of AWS are not. So variables that describe this machine or this
login stay, and what looks secret travels only if the script names it.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode
from yaml.resolver import BaseResolver

from config.mistakes import Path
from config.run.env import NAME_FORM
from config.run.owned_variables import owner
from config.sensitive import is_secret_name, may_leave_as_text
from config.yaml.marked_yaml import TEXT, Document, document_of
from formats.converted import Placed
from formats.foreign_file import ForeignFile
from formats.sbatch.header import Given, Header, Word, is_batch_script, read_header
from formats.sbatch.options import Option

SCRIPT = "#!"
"""The key of the script's text in the document."""

_TIME = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?")
_UNLIMITED = ("UNLIMITED", "INFINITE", "-1", "0")


def compose(text: str, file: str) -> Document | None:
    """Return a batch script's document: an entry for each option, and one for the script."""
    if not is_batch_script(text, file):
        return None
    last = {given.option.name: given for given in read_header(text).options}
    entries = [_entry(f"--{name}", given, file, text) for name, given in last.items()]
    begin, end = (Mark(file, 0, line, 0, text, 0) for line in (0, len(text.splitlines())))
    script = ScalarNode(TEXT, text, begin, end)
    entries.append((ScalarNode(TEXT, SCRIPT, begin, begin), script))
    return document_of(MappingNode(BaseResolver.DEFAULT_MAPPING_TAG, entries, begin, begin))


def _entry(name: str, given: Given, file: str, text: str) -> tuple[Node, Node]:
    at, value_at = _mark(given.at, file, text), _mark(given.value_at, file, text)
    return ScalarNode(TEXT, name, at, at), ScalarNode(TEXT, given.value, value_at, value_at)


def _mark(word: Word, file: str, text: str) -> Mark:
    return Mark(file, 0, word.line, word.column, text, 0)


class BatchFile(ForeignFile):
    """The options of a batch script by their names, and the mistakes so far."""

    @property
    def script(self) -> str:
        """The script's text."""
        return str(self.document.data[SCRIPT])

    @property
    def header(self) -> Header:
        """The header, whose faults and unread lines no option has."""
        return read_header(self.script)

    @property
    def folder(self) -> FilePath:
        """The script's folder."""
        return FilePath(self.document.file).absolute().parent

    def has(self, name: str) -> bool:
        """Return whether the header has the option."""
        return f"--{name}" in self.document.data

    def option(self, name: str) -> str:
        """Return the option's value; empty if there is none."""
        return str(self.document.data.get(f"--{name}", ""))

    def given_values(self) -> Mapping[str, str]:
        """Return the values of `--set` of gpuctl."""
        return self.given.values()

    def at(self, name: str) -> Path:
        """Return the option's path."""
        return (f"--{name}",)

    def wrong(self, name: str, hint: str) -> None:
        """Report a value that sbatch would refuse."""
        message = f"'--{name}' is '{self.option(name)}'"
        self.complain("E203", message, hint, self.at(name))

    def refuse(self, name: str, why: str, hint: str) -> None:
        """Refuse an option that gpuctl cannot carry out."""
        self.complain("E228", f"'--{name}' {why}", hint, self.at(name), on_key=True)

    def leave_out(self, name: str, why: str) -> None:
        """Report that an option has no effect."""
        hint = "remove it if the job does not need it"
        self.complain("W206", f"'--{name}' is left out: {why}", hint, self.at(name), on_key=True)

    def last_options(self) -> list[Given]:
        """Return the options, of one given twice the last."""
        return list({given.option.name: given for given in self.header.options}.values())

    def number(self, name: str, default: int = 0, least: int = 1) -> int:
        """Return the whole number of an option; `default` without the option."""
        if not self.has(name):
            return default
        text = self.option(name)
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            self.wrong(name, f"write a whole number from {least} on")
            return default
        return int(text)

    def seconds(self, name: str) -> int:
        """Return a time in whole minutes, rounded up, as seconds; 0 for no limit.

        Forms: sbatch(1), `--time`: minutes, minutes:seconds, hours:minutes:seconds, days-hours,
        days-hours:minutes and days-hours:minutes:seconds.
        """
        text = self.option(name)
        if not text or text.upper() in _UNLIMITED:
            return 0
        match = _TIME.fullmatch(text)
        if match is None:
            self.wrong(name, "write minutes, hours:minutes:seconds or days-hours:minutes:seconds")
            return 0
        days, *rest = match.groups()
        parts = [int(part) for part in rest if part is not None]
        if days is not None:
            hours, minutes, seconds = [*parts, 0, 0][:3]
        elif len(parts) == 3:
            hours, minutes, seconds = parts
        else:
            hours, (minutes, seconds) = 0, [*parts, 0][:2]
        total = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
        return -(-total // 60) * 60


def accounting_names(options: list[Option]) -> str:
    """Return the options as the line that names them does."""
    return ", ".join(f"--{option.name}" for option in options)


def values_of(document: Document) -> Any:
    """Return the document's data if it is a batch script's, else None."""
    data = document.data
    return data if isinstance(data, dict) and SCRIPT in data else None


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
