"""Profiles that give no credentials: one line with the profile and what is wrong in which place."""

import os
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.errors import GpuctlError
from provision.aws.clients import forget_clients
from tests.cli.test_command import COMMAND

pytestmark = pytest.mark.slow

Status = Callable[..., str]

TRIES = "`aws sts get-caller-identity --profile {name}` tries it"


def ended(home: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`gpuctl status` as it ends for a user of this home, without a terminal; it fails."""
    done = subprocess.run(
        [str(COMMAND), "--region", "us-east-1", *options, "status"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AWS_EC2_METADATA_DISABLED": "true",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # without a terminal
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the error of `gpuctl status` for a user with this configuration of AWS."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GPUCTL_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    folder = tmp_path / ".aws"
    folder.mkdir()

    def error(config: str, *options: str, **variables: str) -> str:
        (folder / "config").write_text(config)
        forget_clients()
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            done = CliRunner().invoke(app, ["--region", "us-east-1", *options, "status"])
        assert isinstance(done.exception, GpuctlError), done.output
        assert (done.exception.exit_code, done.stdout) == (1, "")
        return str(done.exception)

    return error


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("echo no JSON, and a secret", "prints no JSON object, as it must"),
        ("echo 7", "prints no JSON object, as it must"),
        ("exit 0", "prints no JSON object, as it must"),
        ("echo please log in >&2; exit 3", "failed: please log in"),
        ("exit 3", "failed"),
        ("""echo '{"Version": 1}'""", "failed: Missing required key in response: 'AccessKeyId'"),
    ],
)
def test_a_program_that_gives_no_credentials_is_named_with_its_profile(
    program: str, what: str, status: Status, tmp_path: Path
) -> None:
    script = tmp_path / "sign-in"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    config = f"[profile work]\ncredential_process = {script} --password hidden\n"
    assert status(config, "--profile", "work") == (
        f"the credential_process of profile 'work' ({script}) {what};"
        f" correct it in ~/.aws/config; {TRIES.format(name='work')}"
    )


def test_a_profiles_name_is_quoted_in_the_command_that_tries_it(status: Status) -> None:
    config = '[profile "the team"]\ncredential_process = false\n'
    assert TRIES.format(name="'the team'") in status(config, "--profile", "the team")


@pytest.mark.parametrize(
    ("program", "why"), [("missing", "No such file or directory"), (".aws", "Permission denied")]
)
def test_a_program_that_cannot_be_run_is_named_with_its_profile(
    program: str, why: str, status: Status, tmp_path: Path
) -> None:
    path = tmp_path / program
    config = f"[default]\ncredential_process = {path}\n"
    assert status(config) == (
        f"the credential_process of profile 'default' ({path}) cannot be run: {path}: {why};"
        f" correct it in ~/.aws/config; {TRIES.format(name='default')}"
    )


def test_an_mfa_code_that_nobody_can_be_asked_for_is_one_line(tmp_path: Path) -> None:
    config = (
        "[profile admin]\nrole_arn = arn:aws:iam::123456789012:role/Admin\nsource_profile = me\n"
        "mfa_serial = arn:aws:iam::123456789012:mfa/me\n[profile me]\n"
        "aws_access_key_id = AKIDME\naws_secret_access_key = hidden\n"
    )
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(config)
    assert ended(tmp_path, AWS_PROFILE="admin").stderr == (
        "gpuctl: error: profile 'admin' needs an MFA code of arn:aws:iam::123456789012:mfa/me, and"
        " there is no terminal to ask on; run gpuctl on a terminal, or give it credentials that"
        ' have one: eval "$(aws configure export-credentials --profile admin --format env)"\n'
    )


def test_a_token_file_that_does_not_exist_is_named(status: Status) -> None:
    said = status(
        "",
        AWS_WEB_IDENTITY_TOKEN_FILE="/var/run/token",
        AWS_ROLE_ARN="arn:aws:iam::123456789012:role/Job",
    )
    assert said == (
        "the credentials of profile 'default': /var/run/token cannot be read: No such file or"
        " directory; correct the profile, or the variable that names the file"
    )


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
def test_a_variable_for_the_profile_that_is_empty_is_named(variable: str, status: Status) -> None:
    assert status("", **{variable: ""}) == (
        f"{variable} is set and empty, and boto3 takes that as a profile's name; unset {variable},"
        " or set it to a profile: `aws configure list-profiles` names those that exist"
    )


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE", "GPUCTL_AWS_PROFILE"])
def test_a_profile_that_does_not_exist_is_named_with_its_variable(
    variable: str, status: Status
) -> None:
    assert status("", **{variable: "work"}) == (
        f"profile 'work', which {variable} names, is neither in ~/.aws/config nor"
        f" ~/.aws/credentials; change {variable}: `aws configure list-profiles` names those that"
        " exist"
    )


def test_a_profile_of_an_option_that_does_not_exist_is_named(status: Status) -> None:
    assert status("", "--profile", "work") == (
        "profile 'work' is neither in ~/.aws/config nor ~/.aws/credentials; name another one:"
        " `aws configure list-profiles` names those that exist"
    )


NONE = "run `aws configure`, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def test_files_that_boto3_passes_over_are_named_if_nothing_else_has_credentials(
    status: Status, tmp_path: Path
) -> None:
    assert status("", AWS_SHARED_CREDENTIALS_FILE="/nowhere/keys") == (
        "no AWS credentials were found; /nowhere/keys, which AWS_SHARED_CREDENTIALS_FILE names,"
        f" does not exist; {NONE}"
    )
    (tmp_path / ".aws/credentials").mkdir(parents=True)
    assert status("") == (
        f"no AWS credentials were found; ~/.aws/credentials cannot be read: Is a directory; {NONE}"
    )


def test_credentials_of_variables_need_no_program(status: Status) -> None:
    """A broken profile takes no part where keys are given."""
    config = "[default]\ncredential_process = /nowhere\n"
    said = status(
        config,
        AWS_ACCESS_KEY_ID="AKIDX", AWS_SECRET_ACCESS_KEY="x",
        AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_MAX_ATTEMPTS="1",
    )  # fmt: skip
    assert said.startswith("AWS cannot be reached: ")


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a server on this machine, which answers nothing that AWS would."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    serving = Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SESSION_TOKEN", "hunter2\nhunter2"),
        pytest.param("AWS_SESSION_TOKEN", "hunter2\r", marks=pytest.mark.thorough),
        pytest.param("AWS_ACCESS_KEY_ID", "hunter2\nhunter2", marks=pytest.mark.thorough),
    ],
)
def test_a_key_with_a_line_break_is_named_and_not_shown(
    name: str, value: str, tmp_path: Path, address: str
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "secret", name: value}
    said = ended(tmp_path, "--log-level", "debug", AWS_ENDPOINT_URL=address, **keys).stderr
    assert (
        "gpuctl: error: the AWS credentials have a character that no request may have, such as a"
        " line break; correct the access key ID or the session token, in their variables or in the"
        " profile\n"
    ) in said
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in (said, *written) if "hunter2" in text]


SOME_ROLE = "role_arn = arn:aws:iam::123456789012:role/Admin\n"


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (
            "sso_session = x\nsso_account_id = 1\nsso_role_name = r\n",
            'The specified sso-session does not exist: "x"',
        ),
        (
            f"{SOME_ROLE}source_profile = gone\n",
            'The source_profile "gone" referenced in the profile "work" does not exist',
        ),
        (
            f"{SOME_ROLE}credential_source = Nope\n",
            'The credential source "Nope" referenced in profile "work" is not valid',
        ),
        (
            "aws_access_key_id = AKIDME\n",
            "Partial credentials found in config-file, missing: aws_secret_access_key",
        ),
    ],
)
def test_a_profile_that_lacks_something_is_named(config: str, what: str, status: Status) -> None:
    assert status(f"[profile work]\n{config}", "--profile", "work") == (
        f"the credentials of profile 'work': {what}; correct the profile, or the variable that"
        " names the file"
    )


ANY_KEYS = {"AWS_ACCESS_KEY_ID": "AKIDME", "AWS_SECRET_ACCESS_KEY": "hidden"}


@pytest.mark.parametrize(
    ("variables", "what", "where"),
    [
        (
            {**ANY_KEYS, "AWS_ENDPOINT_URL": "localhost:4566"},
            "Invalid endpoint: localhost:4566",
            "AWS_ENDPOINT_URL",
        ),
        (
            {**ANY_KEYS, "AWS_ENDPOINT_URL_EC2": "http://localhost:ec2"},
            "Port could not be cast to integer value as 'ec2'",
            "AWS_ENDPOINT_URL_EC2",
        ),
        (
            {"AWS_METADATA_SERVICE_TIMEOUT": "soon"},
            "invalid literal for int() with base 10: 'soon'",
            "AWS_METADATA_SERVICE_TIMEOUT",
        ),
        (
            {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.org/keys"},
            "Unsupported host 'example.org'.  Can only retrieve metadata from a loopback address or"
            " one of these hosts: 169.254.170.2, 169.254.170.23, fd00:ec2::23, localhost",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ),
        (
            {"AWS_METADATA_SERVICE_NUM_ATTEMPTS": "x", "AWS_USER": "xyz"},
            "invalid literal for int() with base 10: 'x'",
            "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
        ),
    ],
)
def test_a_setting_that_boto3_cannot_read_is_one_line_with_its_variable(
    variables: dict[str, str], what: str, where: str, status: Status
) -> None:
    assert status("", **variables) == (f"a setting for AWS is wrong: {what}; correct {where}")


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "AKIDME"},
            "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not; set both, or neither",
        ),
        (
            {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/keys"},
            "the address in AWS_CONTAINER_CREDENTIALS_FULL_URI gives no credentials: Could not"
            ' connect to the endpoint URL: "http://127.0.0.1:1/keys"; correct or unset'
            " AWS_CONTAINER_CREDENTIALS_FULL_URI; outside of a container nothing needs it",
        ),
        (
            {**ANY_KEYS, "AWS_STS_REGIONAL_ENDPOINTS": "global"},
            "the request to AWS failed: STS regional endpoints option global is invalid. Valid"
            ' options are: "legacy", "regional"; correct AWS_STS_REGIONAL_ENDPOINTS',
        ),
        (
            {**ANY_KEYS, "https_proxy": "http://127.0.0.1:1"},
            'AWS cannot be reached: Failed to connect to proxy URL: "http://127.0.0.1:1"; correct'
            " or unset https_proxy: AWS is reached through that proxy",
        ),
    ],
)
def test_a_variable_that_keeps_gpuctl_from_aws_is_named(
    variables: dict[str, str], error: str, status: Status
) -> None:
    assert status("", **variables) == error


@pytest.mark.parametrize("text", ["region us-east-1\n", "[default]\na = 1\na = 2\n"])
def test_a_file_that_is_not_in_awss_format_is_named(
    text: str, status: Status, tmp_path: Path
) -> None:
    assert status(text) == (
        f"{tmp_path}/.aws/config is not in the format of AWS's settings; correct it: `[profile"
        " NAME]` and `name = value`, each on one line and each name once"
    )


SSO = "sso_start_url = https://x\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = r\n"


def test_a_sign_in_that_is_over_is_renewed_for_the_profile_of_a_roles_source(
    status: Status,
) -> None:
    config = f"[profile work]\n{SSO}[profile role]\n{SOME_ROLE}source_profile = work\n"
    assert status(config, "--profile", "role") == (
        "AWS sign-in: profile 'work': Error loading SSO Token: Token for https://x does not exist;"
        " renew it: `aws sso login --profile work`"
    )


@pytest.mark.parametrize("variable", ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"])
def test_a_file_in_nobodys_home_is_wrong_input(tmp_path: Path, variable: str) -> None:
    done = subprocess.run(
        [str(COMMAND), "--region", "us-east-1", "status"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), variable: "~no-such-user/x"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "gpuctl: error: '~no-such-user/x' begins with '~no-such-user', and this machine has no"
        " such home folder; correct the path\n",
    )
