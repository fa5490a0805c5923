"""The agent's check of the user's commands before a job starts, by the machine's bash."""

import subprocess

import pytest

from engine.agent.node.bash_entries import first_fault
from engine.plan.script import job_script
from tests.config.command_cases import GOOD_COMMANDS


def bash(arguments: list[str], text: str) -> str:
    called = ["bash", *arguments]
    return subprocess.run(called, input=text, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("command", GOOD_COMMANDS)
def test_a_command_that_bash_reads_is_no_fault(command: str) -> None:
    assert first_fault([job_script(["true", command])], bash) is None


@pytest.mark.parametrize(
    ("commands", "fault"),
    [
        (
            ["echo a", "cat <<EOF\nb\n  EOF", "echo c"],
            "entry 2 of its commands is not bash: here-document at line 1 delimited by end-of-file"
            " (wanted `EOF')",
        ),
        (
            ["cat <<EOF", "b", "EOF"],
            "entry 1 of its commands is not bash: here-document at line 1 delimited by end-of-file"
            " (wanted `EOF')",
        ),
        (
            ["echo 'a", "echo b'"],
            "entry 1 of its commands is not bash: line 1: unexpected EOF while looking for"
            " matching `''",
        ),
        (
            ["if [[ -f a && ]]; then\n  ls\nfi", "ls"],
            "entry 1 of its commands is not bash: an operand is missing in a [[ … ]]",
        ),
        (
            ["ls", "shopt -s extglob\nls !(a)\n[[ ]]"],
            "entry 2 of its commands is not bash: an operand is missing in a [[ … ]]",
        ),
        (
            ["ls", "ls\n\nfi"],
            "entry 2 of its commands is not bash: line 3: syntax error near unexpected token `fi'",
        ),
    ],
)
def test_a_command_that_would_take_the_next_ones_is_a_fault(
    commands: list[str], fault: str
) -> None:
    assert first_fault(["echo \"other files 'are' not read", job_script(commands)], bash) == fault
    prelude = job_script(commands, before="echo first\necho second\n")
    assert first_fault([prelude], bash) == fault
