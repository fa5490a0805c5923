"""Writes docs/cli.md: every command's help, as `gpuctl` prints it. Checked for drift by a test."""

from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
_HEAD = """# The commands

Written by `make docs` from the commands' own help; edit the help, not this page.
"""


def page() -> str:
    """The page's text."""
    import typer
    from typer.testing import CliRunner

    from cli.main import app

    runner = CliRunner()
    width = {"COLUMNS": "100", "TERMINAL_WIDTH": "100"}
    command = typer.main.get_command(app)
    names: list[list[str]] = [[]]
    for name, sub in getattr(command, "commands", {}).items():
        if sub.hidden:
            continue
        names.append([name])
        names += [[name, inner] for inner in getattr(sub, "commands", {})]
    parts = [_HEAD]
    for path in names:
        text = runner.invoke(app, [*path, "--help"], prog_name="gpuctl", env=width).output
        lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
        parts.append(f"## {' '.join(['gpuctl', *path])}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
