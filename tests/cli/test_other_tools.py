"""Words of other tools: gpuctl names its own command, and what that does."""

import re
from pathlib import Path

import pytest

from cli.command_table import Commands
from cli.other_tools import OTHERS
from tests.cli.test_command import gpuctl


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        (
            "apply",
            "`gpuctl up FILE` creates or changes a cluster, and `gpuctl run FILE` starts a job",
        ),
        (
            "destroy",
            "`gpuctl down CLUSTER` removes everything of a cluster, and `gpuctl stop RUN` ends a"
            " run",
        ),
        ("list", "`gpuctl status` lists clusters, and `gpuctl ps` runs"),
        ("sinfo", "`gpuctl status` lists clusters, and `gpuctl ps` runs"),
        (
            "taint",
            "`gpuctl heal CLUSTER NODE` replaces a node, and the others stay as they are",
        ),
        (
            "kubectl",
            "gpuctl needs no other tool: write its command without it, and `gpuctl --help` lists"
            " all",
        ),
    ],
)
def test_a_word_of_another_tool_names_ours(word: str, ours: str, tmp_path: Path) -> None:
    done = gpuctl(word, "demo", "--yes", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"Error: No such command '{word}': {ours}."


def test_every_command_that_is_named_exists() -> None:
    for word, ours in OTHERS.items():
        assert word not in Commands(), word
        names = re.findall(r"`gpuctl ([a-z][a-z-]*)", ours)
        assert set(names) <= set(Commands()), ours


def test_a_word_with_a_typing_mistake_names_the_nearest_command(tmp_path: Path) -> None:
    done = gpuctl("upp", home=tmp_path)
    assert (
        done.stderr.splitlines()[-1]
        == "Error: No such command 'upp'. Did you mean 'up', 'support'?"
    )
