"""What others say reaches the reader's terminal as text, never as a command to it."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cli
from cli.output import Output
from cli.render.exec_output import show
from cli.terminal import json_text, shown
from config.progress import Progress
from nodes.answers import Completed

ATTACKS = {
    "title": ("\x1b]0;owned\x07", "^[]0;owned^G"),
    "clear": ("\x1b[2J\x1b[H", "^[[2J^[[H"),
    "C1": ("\x9b2J\x9d0;x\x9c", "\\x9b2J\\x9d0;x\\x9c"),
    "clipboard": ("\x1b]52;c;Y3VybA==\x1b\\", "^[]52;c;Y3VybA==^[\\"),
    "overwritten": ("real\rfake", "real^Mfake"),
    "erased": ("rm x\b\b\b\b\x7f", "rm x^H^H^H^H^?"),
    "reversed": ("a\u202egpj.exe\u2069", "a\\u202egpj.exe\\u2069"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_controls_are_shown(attack: str) -> None:
    text, seen = ATTACKS[attack]
    assert shown(text) == seen


def test_text_lines_and_colours_pass() -> None:
    text = "hälló ✓ 日本\tone\ntwo \x1b[1;31mred\x1b[0m \x1b[38:5:1mx\x1b[m"
    assert shown(text) == text


@given(st.text())
def test_nothing_that_passes_acts_on_a_terminal(text: str) -> None:
    left = re.sub(r"\x1b\[[0-9;:]*m", "", shown(text))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", left)


@given(st.text())
def test_json_has_no_control_and_the_same_value(text: str) -> None:
    written = json_text(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(written) == {text: [text]}
    assert shown(written) == written


def test_every_way_to_the_terminal_is_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    attack = "\x1b]0;owned\x07\x9b2J"
    out = Output()
    out.say(attack)
    out.note(attack)
    out.warn(attack)
    out.show({}, [attack])
    Output(as_json=True).show({"tag": attack}, ())
    Output(as_json=True).record(json.dumps({"tag": attack}, ensure_ascii=False))
    show({"node0": Completed(0, attack, "")}, out)
    out.say("\n".join(out.table(("NAME",), [(attack,)], drop=())))
    with out.progress() as view:
        view.report(Progress("capacity", attack, "failed", attack))
    seen = capsys.readouterr()
    assert "owned" in seen.out
    assert not re.search(r"[\x1b\x07\x9b]", seen.out + seen.err)


def test_raw_passes_everything() -> None:
    assert Output(is_raw=True).visible("\x1b[2J") == "\x1b[2J"


def test_nothing_of_the_command_line_prints_by_another_way() -> None:
    folder = Path(cli.__file__).parent
    others = [
        f"{path.name}: {line.strip()}"
        for path in sorted(folder.rglob("*.py"))
        if path.name != "output.py"
        for line in path.read_text().splitlines()
        if re.search(r"\bprint\(|std(out|err)\.write\(|typer\.echo\(", line)
    ]
    assert others == [
        "progress.py: live.console.print(self._line(progress, started), markup=False)",
        "text_table.py: console.print(drawn)",
        'terminal.py: print(f"{text}\\n", end="", file=to, flush=True)',
    ]
