"""Files that a user names, and that others may have written: whatever is there, one line follows.

Nothing waits for a pipe's writer, reads a device to its end, or reads more than a bound.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.commands.report import _write as write_report
from config.command_text import command_text
from config.errors import GpuctlError, InputError, InvalidFiles
from config.loading.load import check, load_run
from config.run.sources import file_source, folder_sources
from config.settings import export_state, settings
from engine.agent.node.nccl_json_files import collect
from engine.agent.node.node_facts import error_facts
from engine.plan.secrets import look_up
from engine.plan.source_tree import tree_of
from nodes.keys import read_public_key

RUN = "type: task\nname: train\nnodes: 1\ncommands: [hostname]\n"


def pipe(place: Path) -> None:
    os.mkfifo(place, 0o600)


def device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def terminal(place: Path) -> None:
    place.symlink_to("/dev/tty")


def listening(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
    place.chmod(0o600)


def folder(place: Path) -> None:
    place.mkdir(mode=0o700)


def huge(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(10 << 30)
    place.chmod(0o600)


HOSTILE: tuple[tuple[Callable[[Path], None], str], ...] = (
    (pipe, "cannot be read: it is a pipe, not a regular file"),
    (device, "cannot be read: it is a device, not a regular file"),
    (terminal, "cannot be read: it is a device, not a regular file"),
    (listening, "cannot be read: it is a socket, not a regular file"),
    (folder, "cannot be read: Is a directory"),
)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of a hostile file; the user's folder of settings is next to it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "file"


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(GpuctlError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(("make", "reason"), HOSTILE)
def test_a_yaml_file_that_is_no_regular_file_is_refused(
    at: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(at)
    assert error_of(lambda: check(at)) == f"{at} {reason}; check the path"


def test_a_huge_yaml_file_is_refused_without_reading_it(at: Path) -> None:
    huge(at)
    assert error_of(lambda: check(at)) == f"{at} has more than 1 MiB; is it the right file?"


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("printf 'type: task\\nname: x\\nnodes: 1\\ncommands: [hostname]\\n' |", ""),
        ("head -c 3000000 /dev/zero |", " has more than 1 MiB; is it the right file?"),
        ("< /dev/zero", " has more than 1 MiB; is it the right file?"),
    ],
)
def test_standard_input_is_read_with_the_same_bound(name: str, given: str, said: str) -> None:
    before, after = (given, "") if given.endswith("|") else ("", given)
    program = (
        "from pathlib import Path; from config.loading.load import check\n"
        "from config.errors import InputError\n"
        f"try: print(*check(Path({name!r})), end='')\n"
        "except InputError as error: print(error, end='')\n"
    )
    done = subprocess.run(
        ["bash", "-c", f'{before} "$0" -c "$1" {after}', sys.executable, program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == (f"{name}{said}" if said else "")


@pytest.mark.parametrize(("make", "reason"), HOSTILE[:4])
def test_a_run_sends_regular_files_alone(
    at: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(at)
    run = at.with_name("run.yaml")
    run.write_text(f"{RUN}files: [file]\n")
    what = reason.removeprefix("cannot be read: ")
    assert error_of(lambda: load_run(run)) == (
        f"{run}:5:9: E242 'files[0]' is 'file': {what}; name a regular file or a folder"
    )


def test_a_folder_is_sent_without_its_pipes_devices_and_sockets(at: Path) -> None:
    at.mkdir()
    for make in (pipe, listening):
        make(at / make.__name__)
    (at / "train.py").write_text("pass")
    assert [source.path for source in folder_sources(at)] == ["train.py"]


@pytest.mark.parametrize("make", [pipe, device])
def test_a_file_that_became_something_else_is_not_waited_for(
    at: Path, make: Callable[[Path], None]
) -> None:
    at.write_text("x")
    source = file_source(at, "x")
    at.unlink()
    make(at)
    kind = make.__name__
    assert error_of(lambda: tree_of([source])) == (
        f"{at} cannot be read: it is a {kind}, not a regular file; make it readable"
    )


def test_a_file_without_an_end_is_not_sent() -> None:
    source = file_source(Path("/proc/self/pagemap"), "x")
    assert source.size == 0
    assert error_of(lambda: tree_of([source])) == (
        "/proc/self/pagemap cannot be read: it grows while it is read; make it readable"
    )


@pytest.mark.parametrize("name", [".gitignore", ".gpuctlignore"])
def test_a_huge_ignore_file_is_refused(at: Path, name: str) -> None:
    at.mkdir()
    huge(at / name)
    run = at.with_name("run.yaml")
    run.write_text(f"{RUN}workdir: file\n")
    assert error_of(lambda: load_run(run)) == (
        f"{run}:5:10: E242 'workdir': {at}/{name} cannot be read: it has more than 16 MiB;"
        " make it readable, or name it in .gpuctlignore"
    )


@pytest.mark.parametrize(("make", "reason"), [HOSTILE[0], HOSTILE[3], HOSTILE[4]])
def test_a_secret_is_a_regular_file(
    at: Path, make: Callable[[Path], None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_TOKEN", raising=False)
    secret = at.parent / "config" / "gpuctl" / "secrets" / "MY_TOKEN"
    secret.parent.mkdir(parents=True)
    make(secret)
    assert error_of(lambda: look_up("MY_TOKEN")) == (
        f"secret MY_TOKEN: {secret} {reason}; correct the file"
    )


def test_a_secret_is_no_longer_than_a_variable_may_be(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_TOKEN", raising=False)
    secret = at.parent / "config" / "gpuctl" / "secrets" / "MY_TOKEN"
    secret.parent.mkdir(parents=True)
    huge(secret)
    assert error_of(lambda: look_up("MY_TOKEN")) == (
        f"secret MY_TOKEN: {secret} cannot be read: it has more than 128 KiB; correct the file"
    )


@pytest.mark.parametrize("make", [pipe, device, listening, folder, huge])
def test_settings_that_are_no_regular_file_are_refused(
    at: Path, make: Callable[[Path], None]
) -> None:
    file = at.parent / "config" / "gpuctl" / "config.yaml"
    file.parent.mkdir(parents=True)
    make(file)
    export_state()  # every command comes through here
    with pytest.raises(InputError):
        settings()


@pytest.mark.parametrize(
    ("make", "reason"), [*HOSTILE, (huge, "has more than 64 KiB; is it the right file?")]
)
def test_a_public_key_is_a_regular_file(
    at: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(at)
    hint = "" if make is huge else "; name a public key"
    assert error_of(lambda: read_public_key(at)) == f"{at} {reason}{hint}"


def test_a_report_waits_for_no_reader_of_a_pipe(at: Path) -> None:
    pipe(at)
    assert error_of(lambda: write_report(at, b"x")) == (
        f"{at} cannot be written: No such device or address; name another file with -o or --png"
    )


@pytest.mark.parametrize("make", [pipe, device, folder, huge])
def test_a_table_that_a_job_left_is_read_only_if_it_is_a_file(
    at: Path, make: Callable[[Path], None]
) -> None:
    at.mkdir()
    make(at / "nccl-tests-1-x.json")
    (at / "nccl-tests-2-x.json").write_text(json.dumps({"results": []}))
    assert collect(at) == [(2, {"results": []})]


@pytest.mark.parametrize("make", [pipe, device, folder, huge])
def test_torch_s_error_file_is_read_only_if_it_is_a_file(
    at: Path, make: Callable[[Path], None]
) -> None:
    make(at)
    assert error_facts(at) == []


def test_a_path_with_a_nul_is_refused(at: Path) -> None:
    run = at.with_name("run.yaml")
    run.write_text(f'{RUN}files: ["a\\0b"]\n')
    with pytest.raises(InvalidFiles):
        load_run(run)


@pytest.mark.parametrize(
    "value",
    ["a b", "$(touch evil)", "`touch evil`", "a;touch evil", "x\ntouch evil", "it's", '"', "a&&b"],
)
def test_a_command_that_is_shown_passes_a_value_as_one_word(tmp_path: Path, value: str) -> None:
    text = command_text("printf %s {} {}", value, "last")
    done = subprocess.run(
        ["bash", "-c", text[1:-1]], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (f"{value}last", "")
    assert list(tmp_path.iterdir()) == []


def test_a_value_of_a_command_that_is_shown_is_no_option() -> None:
    assert command_text("gpuctl up {}", "--yes") == "`gpuctl up ./--yes`"
    assert command_text("gpuctl down {}", "demo") == "`gpuctl down demo`"


DIGITS = "9" * 5_000
"""More than Python turns into a number (sys.set_int_max_str_digits)."""

NUMBERS = {
    "job.sbatch": (
        f"#!/bin/bash\n#SBATCH --time={DIGITS}-1 --gres=gpu:a100:{DIGITS} --gpus={DIGITS}\n"
        f"#SBATCH --nodes={DIGITS} --mem={DIGITS}G --ntasks={DIGITS}\nhostname\n"
    ),
    ".dstack.yml": (
        f"type: task\nnodes: '{DIGITS}'\nmax_duration: '{DIGITS}'\nports: ['{DIGITS}']\n"
        f"commands: ['${{{{ groups[{DIGITS}].nodes[0].IP_ADDRESS }}}}']\n"
    ),
    "sky.yaml": (
        f"num_nodes: 2\nresources: {{memory: '{DIGITS}+', cpus: '{DIGITS}'}}\nrun: hostname\n"
    ),
    "run.yaml": f"{RUN}ports: ['{DIGITS}']\nmax_duration: {DIGITS}h\n",
    "cluster.yaml": f"name: lab7\nhosts:\n  - address: gpu[0-{DIGITS}]\n",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_many_digits_is_a_mistake_of_the_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(NUMBERS[name])
    diagnostics = check(file)
    assert any(each.code.startswith("E") for each in diagnostics)
    assert all(len(str(each)) < 20_000 for each in diagnostics)
