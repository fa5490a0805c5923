"""What a job prints and leaves: a job is root on its nodes, and nothing of it is believed."""

import base64
import html
import json
import os
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.head.secret_store import take_secrets, write_secrets
from engine.agent.journal import run_secrets_file
from engine.agent.journal.redaction import Redaction, forms

TOKEN = "pa ss/w+or'd\"$x\\é!,{}<&>~"
LINES = tuple(
    f"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoI+/{line:02}xyz" for line in range(12)
)
PEM = "\n".join(("-----BEGIN PRIVATE KEY-----", *LINES, "-----END PRIVATE KEY-----"))


def shown(text: str, *secrets: str) -> str:
    redaction = Redaction(secrets)
    return redaction.feed(text) + redaction.rest()


def printed_by_bash(script: str, value: str) -> str:
    done = subprocess.run(
        ["bash", "-c", script],
        env={"V": value, "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('printf "%s" "$V"', "***"),
        ('printf "%q" "$V"', "***"),
        ('echo "${V@Q}"', "'***'\n"),
        ('set -x; : "$V"', "+ : '***'\n"),
        ("export -p | grep V=", 'declare -x V="***"\n'),
        ('printf "%s" "$V" | base64 -w0', "***"),
        ('echo "$V" | base64 -w0', "***"),
        ('echo "$V" | base64', "***\n"),
        ('printf "%s" "$V" | od -An -v -tx1 | tr -d " \n"', "***"),
        ('printf "%s" "$V" | base64 | tr -d = | tr +/ -_', "***\n"),
    ],
)
def test_a_secret_that_a_shell_prints_is_masked(script: str, expected: str) -> None:
    assert shown(printed_by_bash(script, TOKEN), TOKEN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"token": TOKEN}), '{"token": "***"}'),
        (json.dumps({"token": TOKEN}, ensure_ascii=False), '{"token": "***"}'),
        (json.dumps(TOKEN).replace("/", "\\/"), '"***"'),
        ('"pa ss/w+or\'d\\"$x\\\\é!,{}\\u003c\\u0026\\u003e~"', '"***"'),  # Go's encoding/json
        (repr({"token": TOKEN}), "{'token': '***'}"),
        (quote(TOKEN), "***"),
        (quote(TOKEN, safe=""), "***"),
        (quote_plus(TOKEN), "***"),
        (urlencode({"a": 1, "token": TOKEN}), "a=1&token=***"),
        ("pa%20ss%2fw%2bor'd%22%24x%5c%c3%a9!%2c%7b%7d%3c%26%3e~", "***"),  # encodeURIComponent
        (shlex.quote(TOKEN), "'***'"),
        (base64.b64encode(TOKEN.encode()).decode(), "***"),
        (base64.urlsafe_b64encode(TOKEN.encode()).decode(), "***"),
        (TOKEN.encode().hex(), "***"),
        (f"0x{TOKEN.encode().hex().upper()}", "0x***"),
        (f"Key: {TOKEN.encode().hex(':')}", "Key: ***"),  # openssl
        (TOKEN.encode().hex(" ").upper(), "***"),
        (repr({"token": TOKEN.encode()}), "{'token': b'***'}"),
        (json.dumps(json.dumps({"token": TOKEN})), r'"{\"token\": \"***\"}"'),
        (f"<p>{html.escape(TOKEN)}</p>", "<p>***</p>"),
        (f"<p>{html.escape(TOKEN, quote=False)}</p>", "<p>***</p>"),
        ("pa ss/w+or&#39;d&#34;$x\\é!,{}&lt;&amp;&gt;~", "***"),  # Go's html/template
    ],
)
def test_a_secret_in_an_encoding_of_programs_is_masked(text: str, expected: str) -> None:
    assert shown(text, TOKEN) == expected


@pytest.mark.parametrize(
    ("user", "expected"),
    [("an", "YW46***"), ("ann", "YW5uOm***Y="), ("anna", "YW5uYTp***")],
)
def test_a_password_of_basic_authentication_is_masked(user: str, expected: str) -> None:
    """The digits at its ends depend on other characters too (RFC 7617)."""
    secret = "hf_0123456789abcdef"
    encoded = base64.b64encode(f"{user}:{secret}".encode()).decode()
    assert shown(f"Authorization: Basic {encoded}", secret) == f"Authorization: Basic {expected}"


@pytest.mark.parametrize("program", ["base64", "base64 -w 64"])
def test_base64_in_lines_is_masked(program: str) -> None:
    text = printed_by_bash(f'printf "%s" "$V" | {program}', PEM)
    assert len(text.splitlines()) > 5
    assert set(shown(text, PEM).split()) == {"***"}


def test_a_value_that_is_no_utf_8_is_masked_where_it_is_text() -> None:
    assert shown("a hf_012345678\udcff b", "hf_012345678\udcff") == "a *** b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"[rank0] {LINES[3]}\n", "[rank0] ***\n"),
        ("".join(f"[rank0] {line}\n" for line in PEM.splitlines()), "[rank0] ***\n" * 14),
        ("  ".join(PEM.splitlines()), "  ".join(["***"] * 14)),
        (json.dumps({"key": PEM}), '{"key": "***"}'),
        (PEM.replace("\n", "\r\n"), "\r\n".join(["***"] * 14)),
        (f"key:\n{PEM}\n", "key:\n***\n"),
        (quote(PEM), "***"),
        (printed_by_bash('printf "%q" "$V"', PEM), "$'***'"),
    ],
)
def test_each_line_of_a_secret_is_masked(text: str, expected: str) -> None:
    assert shown(text, PEM) == expected


def test_lines_of_fewer_than_eight_characters_are_not_masked() -> None:
    secret = "user=me\npassword=geheim\n{\n"
    assert shown("user=me { password=geheim", secret) == "user=me { ***"


def test_a_value_inside_of_another_leaves_nothing_of_either() -> None:
    assert shown("x abcdefghijkl y", "abcdefgh", "efghijkl") == "x *** y"
    assert shown("abcdefghabcdefgh", "abcdefgh") == "******"


def test_an_endless_text_of_a_value_is_not_held_in_memory() -> None:
    redaction = Redaction(["-" * 12])
    pieces = [redaction.feed("-" * 1000) for _ in range(100)]
    assert "".join(pieces) + redaction.rest() == "***"


ENCODINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda value: base64.b64encode(value.encode()).decode(),
    lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    lambda value: quote(value, safe=""),
    quote_plus,
    lambda value: json.dumps(value)[1:-1],
    lambda value: shlex.quote(value).strip("'"),
    lambda value: repr(value)[1:-1],
)


@given(st.text(st.characters(codec="utf-8"), min_size=8, max_size=30), st.data())
def test_no_encoding_in_any_pieces_shows_a_secret(value: str, data: st.DataObject) -> None:
    encoded = data.draw(st.sampled_from(ENCODINGS))(value)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(encoded)), max_size=4)))
    redaction = Redaction([value])
    pieces = [encoded[a:b] for a, b in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    text = "".join(redaction.feed(piece) for piece in pieces) + redaction.rest()
    assert text == shown(encoded, value)
    assert not any(form in text for form in forms(value) if "*" not in form)
    assert value not in text or set(value) == {"*"}


def test_the_agent_redacts_without_imports_that_slow_its_start() -> None:
    program = "import sys; import engine.agent.journal.redaction; print('urllib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


SUPERVISOR = """
from pathlib import Path
from engine.agent.head.secret_store import take_secrets
print(take_secrets(Path("job-1")).decode(), end="")
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is /run/gpuctl on a head."""
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    return tmp_path / "memory"


def supervisor(environment: dict[str, str], *passed: int) -> subprocess.Popen[str]:
    """Start what a supervisor does first; `passed` are the descriptors that systemd hands it."""
    command = [sys.executable, "-c", SUPERVISOR]
    if passed:  # systemd sets LISTEN_PID, which is known after the fork
        script = f'exec 3<&{passed[0]}; export LISTEN_PID=$$; exec "$@"'
        command = ["bash", "-c", script, "bash", *command]
    return subprocess.Popen(
        command, env=os.environ | environment, pass_fds=passed, stdout=subprocess.PIPE, text=True
    )


def test_secrets_are_in_no_file_once_systemd_has_them_for_the_next_supervisor(
    memory: Path, tmp_path: Path
) -> None:
    secrets = json.dumps({"secrets": {"MY_TOKEN": TOKEN}})
    write_secrets(Path("job-1"), secrets.encode())
    file = memory / "job-1.secrets"
    assert stat.S_IMODE(memory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        first = supervisor({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        text, (kept,), _, _ = socket.recv_fds(systemd, 100, 1)
        assert text == b"FDSTORE=1\nFDNAME=gpuctl-secrets"
        text, (barrier,), _, _ = socket.recv_fds(systemd, 100, 1)
        assert text == b"BARRIER=1"
        assert file.exists(), "systemd has not said that it has the copy"
        os.close(barrier)
        assert first.communicate(timeout=60)[0] == secrets
    assert list(memory.iterdir()) == []
    # It was killed: systemd starts the next one with the copy.
    for _ in range(2):
        names = {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "gpuctl-secrets"}
        assert supervisor(names, kept).communicate(timeout=60)[0] == secrets
    assert list(memory.iterdir()) == []
    os.close(kept)


@pytest.mark.parametrize("address", [None, "/nowhere/notify"])
def test_secrets_stay_in_their_file_where_nothing_else_keeps_them(
    memory: Path, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    write_secrets(Path("job-1"), b"{}")
    assert take_secrets(Path("job-1")) == b"{}"
    assert [path.name for path in memory.iterdir()] == ["job-1.secrets"]
    run_secrets_file.remove_handover(Path("job-1"))
    assert list(memory.iterdir()) == []


def test_a_file_that_somebody_put_in_the_place_of_the_secrets_is_not_written(memory: Path) -> None:
    memory.mkdir()
    (memory / "job-1.secrets").symlink_to("/dev/stdout")
    with pytest.raises(FileExistsError):
        write_secrets(Path("job-1"), b"{}")
