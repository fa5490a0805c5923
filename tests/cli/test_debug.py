"""Options of `gpuctl debug` that do not go together."""

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.errors import InputError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "gdb"], "a command is for one rank; write `--rank N` in front of it"),
        (
            ["--rank", "1", "--json", "--", "gdb"],
            "what a terminal shows has no JSON form; leave `--json` out",
        ),
        (["--port", "5678"], "--port is for a command; write the command behind `--`"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["debug", "train", *words])
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == message
