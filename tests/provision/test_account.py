"""The user's AWS configuration, read as boto3 reads it."""

import http.client
import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from config.errors import CloudError
from config.target import Target
from infra.stack.credential_server import TOKEN, URL, credential_server
from infra.stack.engine_command import EngineCommand, inherited_environment
from infra.stack.installation import Engine
from infra.stack.plugins import VERSION
from infra.stack.stack import Stack
from lab import fault_kinds, fault_table
from provision.aws.account import (
    credentials_end,
    credentials_source,
    expiry_warning,
    profile_region,
    resolve_credentials,
)
from provision.aws.clients import aws_errors, client
from provision.aws.resources import find_all
from tests.docs.pages import HOME
from tests.infra.region import Worlds, resolved
from tests.labs import KEY

pytestmark = pytest.mark.slow


def test_the_region_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("[profile research]\nregion = eu-north-1\n[default]\noutput = json\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert profile_region("research") == "eu-north-1"
    assert profile_region(None) is None
    with pytest.raises(CloudError) as error:
        profile_region("nobody")
    assert str(error.value) == (
        f"profile 'nobody' is neither in {config} nor ~/.aws/credentials; name another one:"
        " `aws configure list-profiles` names those that exist"
    )


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's files with a profile `research`, and nothing else to find credentials by."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "AWS_CONFIG_FILE").write_text("[profile research]\nregion = eu-north-1\n")
    (tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(
        "[research]\naws_access_key_id = AKIDRESEARCH\naws_secret_access_key = hidden\n"
        "aws_session_token = token\n"
    )
    return tmp_path


def test_boto3_and_the_engine_get_the_same_credentials(profiles: Path) -> None:
    target = Target("aws", "us-east-1", profiles, environment={"AWS_PROFILE": "research"})
    assert credentials_source(target) == "shared-credentials-file"
    whole = resolve_credentials(target)
    assert whole.credentials is not None
    assert whole.credentials() == {
        "AWS_ACCESS_KEY_ID": "AKIDRESEARCH",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_SESSION_TOKEN": "token",
    }
    assert resolve_credentials(whole) is whole
    assert "hidden" not in repr(whole)


def test_keys_that_somebody_writes_into_the_file_count_from_the_next_use_on(
    profiles: Path,
) -> None:
    whole = resolve_credentials(
        Target("aws", "us-east-1", profiles, environment={"AWS_PROFILE": "research"})
    )
    file = profiles / "AWS_SHARED_CREDENTIALS_FILE"
    file.write_text(file.read_text().replace("hidden", "renewed"))
    os.utime(file, ns=(1, 1))  # a clock may be too coarse to show the second writing
    assert whole.credentials is not None
    assert whole.credentials()["AWS_SECRET_ACCESS_KEY"] == "renewed"


def sign_in(profiles: Path, seconds: int = 60) -> Target:
    """The target of a user whose credentials last so long; each has the time of its issue."""
    script = profiles / "sign-in"
    answer = {
        "Version": 1,
        "AccessKeyId": KEY.key_id,
        "SecretAccessKey": KEY.secret,
        "SessionToken": "$issued",
        "Expiration": "$end",
    }
    script.write_text(
        f"issued=$(date +%s.%N)+{seconds} end=$(date -u -d '+{seconds} seconds' +%FT%TZ)\n"
        f"cat <<END\n{json.dumps(answer)}\nEND\n"
    )
    (profiles / "AWS_CONFIG_FILE").write_text(
        f"[profile short]\ncredential_process = sh {script}\n"
    )
    return Target("aws", "us-east-1", profiles, environment={"AWS_PROFILE": "short"})


@pytest.fixture
def short_lived(profiles: Path) -> Target:
    return sign_in(profiles)


ENGINE = """#!{python}
import json, os, urllib.request
asked = urllib.request.Request(os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"])
asked.add_header("Authorization", os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"])
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
answers = [json.load(opener.open(asked)) for _ in range(2)]
print(json.dumps({{"answers": answers, "environment": dict(os.environ)}}))
"""


def test_the_engine_asks_for_credentials_as_often_as_it_needs_them(
    short_lived: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = short_lived.state / "AWS_CONFIG_FILE"
    config.write_text(f"{config.read_text()}ca_bundle = /etc/ssl/company.pem\n")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-somebody-else")
    whole = resolve_credentials(short_lived)
    engine = whole.state / "engine"
    engine.write_text(ENGINE.format(python=sys.executable))
    engine.chmod(0o755)
    command = EngineCommand(Engine(engine, "3.258.0", "path"), whole.credentials)
    done = json.loads(command.run([], str(whole.state), short_lived.environment).stdout)
    first, second = done["answers"]
    issued = [float(answer["Token"].partition("+")[0]) for answer in (first, second)]
    assert issued[0] < issued[1]
    assert (first["AccessKeyId"], first["SecretAccessKey"]) == (KEY.key_id, KEY.secret)
    assert datetime.fromisoformat(first["Expiration"]) > datetime.now(UTC)
    given = {name: value for name, value in done["environment"].items() if "AWS" in name}
    assert given.pop("AWS_CONTAINER_CREDENTIALS_FULL_URI").startswith("http://127.0.0.1:")
    assert given.pop("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    assert given == {
        "AWS_CA_BUNDLE": "/etc/ssl/company.pem",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    assert KEY.secret not in json.dumps(done["environment"])


def test_credentials_are_served_to_who_knows_the_token_alone() -> None:
    def fails() -> dict[str, str]:
        if len(calls) > 1:
            raise CloudError("AWS sign-in: the token has ended", "", "ExpiredToken")
        calls.append("asked")
        return {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "hidden"}

    calls: list[str] = []
    with credential_server(fails) as variables:
        url, token = (variables[name] for name in (URL, TOKEN))
        assert ask(url, "") == (403, {"code": "Forbidden", "message": "the token is wrong"})
        status, answer = ask(url, token)
        assert (status, answer["AccessKeyId"], answer["SecretAccessKey"]) == (200, "AKID", "hidden")
        assert ask(url, token) == (
            400, {"code": "NoCredentials", "message": "AWS sign-in: the token has ended"},
        )  # fmt: skip
    with pytest.raises(OSError, match="refused"):
        ask(url, token)


def ask(url: str, token: str) -> tuple[int, dict[str, str]]:
    """The status and the answer of the server of credentials."""
    place = urlsplit(url)
    asked = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
    asked.request("GET", place.path, headers={"Authorization": token})
    answer = asked.getresponse()
    return answer.status, json.loads(answer.read())


PROVIDER = """#!/bin/sh
cd {home} && exec {python} -m lab.provider --endpoint {url}
"""


@pytest.mark.engine
def test_an_up_takes_longer_than_its_credentials_last(
    profiles: Path, worlds: Worlds, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine starts the provider itself, as on AWS, and EC2 makes everything slow."""
    plugin = profiles / f"gpuctl/pulumi/plugins/resource-aws-v{VERSION}/pulumi-resource-aws"
    plugin.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(profiles))
    faults = {"consistency": fault_kinds.parse("consistency", ("1",))}
    fault_table.write(profiles / "faults.json", faults)
    with worlds.api(profiles) as (url, _):
        plugin.write_text(PROVIDER.format(home=HOME, python=sys.executable, url=url))
        plugin.chmod(0o755)
        target = resolve_credentials(replace(sign_in(profiles, 5), endpoint=url))
        stack = Stack("demo", target, engine)
        assert len(stack.up(resolved(target)).nodes) == 2
        stack.destroy()
        assert find_all(target, None) == []


def test_credentials_that_expire_meanwhile_are_renewed_by_every_client(
    short_lived: Target, tmp_path: Path, worlds: Worlds
) -> None:
    faults = tmp_path / "faults.json"
    with worlds.api(tmp_path) as (url, _):
        whole = resolve_credentials(replace(short_lived, endpoint=url))
        ec2 = client(whole, "ec2")
        assert ec2.describe_vpcs()["Vpcs"] == []
        assert whole.credentials is not None
        old = replace(short_lived, endpoint=url, environment=whole.credentials())
        fault_table.write(faults, {"expired-token": fault_kinds.parse("expired-token", ("1",))})
        # Only the old ones are used until they end: renewed ones could end between their issue and
        # their arrival.
        while (now := caught(old)) is None:
            continue
        assert now.startswith("AWS refused DescribeVpcs: RequestExpired: Request has expired")
        assert ec2.describe_vpcs()["Vpcs"] == []
        assert find_all(whole, None) == []


def caught(target: Target) -> str | None:
    """The error of a request with the target's credentials; None if AWS answers it."""
    try:
        with aws_errors():
            client(target, "ec2").describe_vpcs()
    except CloudError as error:
        return error.message
    return None


def test_a_warning_where_credentials_end_before_the_work(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("aws", "us-east-1", profiles)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    assert expiry_warning(target, timedelta()) == ""
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", end.isoformat())
    assert expiry_warning(target, timedelta()) == ""
    said = expiry_warning(target, timedelta(hours=1))
    assert said.startswith(
        f"the AWS credentials end at {end:%Y-%m-%d %H:%M} UTC, and `up` may need"
    )
    assert said.endswith(": renew them first (`aws sso login`)")
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2026-01-01T00:00:00Z")
    with pytest.raises(CloudError) as expired:
        resolve_credentials(target)
    assert (expired.value.message, expired.value.code) == (
        "the AWS credentials have expired, and are the same after renewal",
        "ExpiredToken",
    )


def sign_ins(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make it the user's home; return the folder in which the AWS CLI keeps sign-ins."""
    monkeypatch.setenv("HOME", str(home))
    folder = home / ".aws/sso/cache"
    folder.mkdir(parents=True)
    return folder


def test_the_end_of_a_sign_in_is_known_unless_it_renews_itself(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = sign_ins(profiles, monkeypatch) / f"{sha1(b'corp').hexdigest()}.json"
    (profiles / "AWS_CONFIG_FILE").write_text(
        "[profile work]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = ml\n"
        "[sso-session corp]\nsso_start_url = https://corp.awsapps.com/start\n"
        "sso_region = us-east-1\n"
    )
    target = Target("aws", "us-east-1", profiles, environment={"AWS_PROFILE": "work"})
    token = {"accessToken": "a", "expiresAt": "2026-11-22T12:00:00Z"}
    kept.write_text(json.dumps(token))
    assert credentials_end(target) == datetime(2026, 11, 22, 12, tzinfo=UTC)
    kept.write_text(json.dumps({**token, "refreshToken": "r"}))
    assert credentials_end(target) is None
    kept.write_text("no token")
    assert credentials_end(target) is None
    kept.unlink()
    assert credentials_end(target) is None


@pytest.mark.parametrize("name", ["default", "old"])
def test_the_end_of_a_sign_in_without_a_session_is_known(
    profiles: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kept = sign_ins(profiles, monkeypatch)
    url = "https://corp.awsapps.com/start"
    (profiles / "AWS_CONFIG_FILE").write_text(
        f"[{'default' if name == 'default' else 'profile old'}]\nsso_start_url = {url}\n"
        "sso_region = us-east-1\nsso_account_id = 123456789012\nsso_role_name = ml\n"
    )
    token = {"accessToken": "a", "expiresAt": "2026-11-22T12:00:00Z"}
    (kept / f"{sha1(url.encode()).hexdigest()}.json").write_text(json.dumps(token))
    given = {} if name == "default" else {"AWS_PROFILE": name}
    target = Target("aws", "us-east-1", profiles, environment=given)
    assert credentials_end(target) == datetime(2026, 11, 22, 12, tzinfo=UTC)
    ending = expiry_warning(target, timedelta())
    assert ending.startswith("the AWS credentials end at 2026-11-22 12:00 UTC, and `up` may need")


def test_a_sign_in_that_has_ended_is_reported(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(profiles))
    (profiles / "AWS_CONFIG_FILE").write_text(
        "[profile work]\nsso_start_url = https://corp.awsapps.com/start\n"
        "sso_region = us-east-1\nsso_account_id = 123456789012\nsso_role_name = ml\n"
    )
    with pytest.raises(CloudError) as ended:
        resolve_credentials(
            Target("aws", "us-east-1", profiles, environment={"AWS_PROFILE": "work"})
        )
    assert ended.value.code == "ExpiredToken"
    assert ended.value.message.startswith("AWS sign-in: Error loading SSO Token: ")


def test_credentials_are_requested_once_for_all_regions(profiles: Path) -> None:
    requests = profiles / "requests"
    (profiles / "AWS_CONFIG_FILE").write_text(
        "[profile once]\ncredential_process = sh -c 'echo x >>"
        f' {requests}; echo {{\\"Version\\":1,\\"AccessKeyId\\":\\"a\\",'
        '\\"SecretAccessKey\\":\\"b\\"}\'\n'
    )
    target = Target("aws", "us-east-1", profiles, environment={"AWS_PROFILE": "once"})
    for region in ("us-east-1", "us-west-2", "eu-west-1"):
        assert client(replace(target, region=region), "ec2").meta.region_name == region
    assert resolve_credentials(target).credentials is not None
    assert requests.read_text() == "x\n"


def test_the_user_s_own_variables_cannot_contradict_given_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "of-somebody-else")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    assert "of-somebody-else" not in inherited_environment({"AWS_ACCESS_KEY_ID": "a"}).values()
    assert inherited_environment({})["AWS_PROFILE"] == "of-somebody-else"


def test_no_credentials_anywhere_are_told(profiles: Path) -> None:
    with pytest.raises(CloudError) as error:
        resolve_credentials(Target("aws", "us-east-1", profiles))
    assert (error.value.message, error.value.code) == (
        "no AWS credentials were found",
        "NoCredentials",
    )
