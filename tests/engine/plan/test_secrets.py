"""Secrets: where the client finds them, and that nothing but the job's environment has them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import InputError
from engine.contract.codec import to_json
from engine.contract.node_plan import ImagePlan
from engine.contract.plan import LaunchPlan
from engine.plan.launch_plan import launch_plan
from engine.plan.secrets import resolve
from tests.engine.conftest import make_inventory, make_plan, make_run

VALUE = "geheim-0123456789"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("MY_TOKEN", raising=False)
    folder = tmp_path / "gpuctl" / "secrets"
    folder.mkdir(parents=True)
    return folder


def plan() -> LaunchPlan:
    return make_plan(env={"TOKEN": {"secret": "MY_TOKEN"}}, commands=("echo is $TOKEN",))


def keep(folder: Path, text: bytes, mode: int = 0o600) -> Path:
    path = folder / "MY_TOKEN"
    path.write_bytes(text)
    path.chmod(mode)
    return path


def complaint() -> str:
    with pytest.raises(InputError) as error:
        resolve(plan())
    return str(error.value)


def test_the_environment_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, b"from the file")
    monkeypatch.setenv("MY_TOKEN", VALUE)
    assert resolve(plan()) == {"MY_TOKEN": VALUE}


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_then_the_file_without_its_last_line_end(folder: Path, end: bytes) -> None:
    keep(folder, b"two\nlines \xc3\xa9" + end)
    assert resolve(plan()) == {"MY_TOKEN": "two\nlines é"}


@pytest.mark.parametrize("text", ["two\nlines", "hf_0123456789", "\N{ZERO WIDTH NO-BREAK SPACE}x"])
def test_the_byte_order_mark_of_a_file_is_no_part_of_the_secret(folder: Path, text: str) -> None:
    keep(folder, text.encode("utf-8-sig") + b"\r\n")
    assert resolve(plan()) == {"MY_TOKEN": text}


def test_a_registry_s_password_is_one_too(folder: Path) -> None:
    keep(folder, VALUE.encode())
    image = ImagePlan(reference="a/b", username="me", password_secret="MY_TOKEN")
    assert resolve(replace(make_plan(), image=image)) == {"MY_TOKEN": VALUE}


def test_a_registry_s_password_may_be_in_the_file_and_is_in_no_plan(folder: Path) -> None:
    auth = {"username": "me", "password": "hunter2"}
    run = make_run(image="a/b", registry_auth=auth)
    plan = launch_plan(run, make_inventory(2), "job-000001")
    assert "hunter2" not in json.dumps(to_json(plan))
    assert plan.image is not None
    assert resolve(plan, run) == {plan.image.password_secret: "hunter2"}


def test_a_run_without_secrets_needs_none(folder: Path) -> None:
    assert resolve(make_plan()) == {}


def test_neither_is_there(folder: Path) -> None:
    assert complaint() == (
        f"secret MY_TOKEN is neither in your environment nor in {folder}/MY_TOKEN;"
        " `export MY_TOKEN=…`, or write the value into that file with mode 600"
    )


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_open_is_refused(folder: Path, mode: int) -> None:
    path = keep(folder, VALUE.encode(), mode)
    assert complaint() == (
        f"secret MY_TOKEN: {path} is accessible to other users (mode 0{mode:o}); "
        f"`chmod 600 {path}`, and rotate the secret: others may have read it"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\n", "secret MY_TOKEN is empty in {path}; set it to a value"),
        (b"a\0b", "secret MY_TOKEN has a NUL character in {path}; remove that character"),
        (
            b"\xff\xfe",
            "secret MY_TOKEN: {path} cannot be read: it is not UTF-8 text; correct the file",
        ),
    ],
)
def test_a_file_that_holds_no_secret(folder: Path, text: bytes, expected: str) -> None:
    path = keep(folder, text)
    assert complaint() == expected.format(path=path)


def test_an_empty_variable_is_no_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "")
    assert complaint() == "secret MY_TOKEN is empty in your environment; set it to a value"


HOOK = "https://hooks.slack.com/services/T0/B0/hidden"


def notified(value: str, monkeypatch: pytest.MonkeyPatch, **target: object) -> dict[str, str]:
    monkeypatch.setenv("HOOK", value)
    return resolve(make_plan(notify=({"webhook": {"secret": "HOOK"}, **target},)))


def test_a_webhooks_url_is_one_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert notified(HOOK, monkeypatch, form="slack") == {"HOOK": HOOK}
    keep(folder, VALUE.encode())
    headers = {"Authorization": {"secret": "MY_TOKEN"}, "X-Team": "train"}
    both = {"HOOK": "http://10.1.2.3/x", "MY_TOKEN": VALUE}
    assert notified("http://10.1.2.3/x", monkeypatch, headers=headers) == both
    command = {"command": "x", "env": {"KEY": {"secret": "MY_TOKEN"}, "A": "b"}}
    assert resolve(make_plan(notify=(command,))) == {"MY_TOKEN": VALUE}
    (kept,) = make_plan(notify=(command,)).notify
    assert (kept.to, kept.values, kept.secrets) == ("x", {"A": "b"}, {"KEY": "MY_TOKEN"})
    (kept,) = make_plan(notify=({"webhook": {"secret": "HOOK"}},)).notify
    assert (kept.to, kept.to_secret) == ("", "HOOK")


def test_a_secret_of_a_command_may_have_any_text(folder: Path) -> None:
    keep(folder, b"two\nlines")
    command = {"command": "x", "env": {"KEY": {"secret": "MY_TOKEN"}}}
    assert resolve(make_plan(notify=(command,))) == {"MY_TOKEN": "two\nlines"}


@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (
            "hidden",
            "json",
            "secret HOOK (notify[0].webhook) has a value which does not begin with https:// and a"
            " host; set it to the webhook's URL: write an address such as"
            " https://example.com/hook",
        ),
        (
            "http://example.com/hidden",
            "json",
            "secret HOOK (notify[0].webhook) has a value which sends over http:// to the public"
            " host example.com; set it to the webhook's URL: write https://",
        ),
        (
            HOOK,
            "json",
            "secret HOOK (notify[0].webhook) is a webhook of Slack; write `form: slack`;"
            " notify[0].form is json",
        ),
    ],
)
def test_a_secret_that_is_no_webhook(
    folder: Path, monkeypatch: pytest.MonkeyPatch, value: str, form: str, expected: str
) -> None:
    with pytest.raises(InputError) as error:
        notified(value, monkeypatch, form=form)
    assert str(error.value) == expected


def test_a_secret_that_is_no_header(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, b"two\nlines")
    with pytest.raises(InputError) as error:
        notified("https://a.example/x", monkeypatch, headers={"Key": {"secret": "MY_TOKEN"}})
    assert str(error.value) == (
        "secret MY_TOKEN (notify[0].headers.Key) is not one line of ASCII; set it to what the"
        " server expects"
    )
