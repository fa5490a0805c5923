"""The user's environment: one list says what of it leaves this machine, in which way.

A run file or a manifest of a stranger may ask for any variable by name.
"""

from pathlib import Path

import pytest

from config.errors import InputError, InvalidFiles
from config.loading.load import load_run
from config.loading.overrides import Overrides, Substitutions
from config.run.env import Secret
from config.sensitive import hide_secrets, is_credential, is_secret_name, may_leave_as_text
from engine.contract.node_plan import ImagePlan
from engine.plan.secrets import credentials, registry_password
from tests.engine.conftest import make_plan

CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
    *("KUBECONFIG", "KUBE_TOKEN", "KUBERNETES_SERVICE_HOST", "DATABASE_URL", "PROD_DATABASE_URL"),
    *("PULUMI_CONFIG_PASSPHRASE", "GITHUB_ACTOR", "GH_TOKEN", "DOCKER_AUTH_CONFIG", "PGPASSWORD"),
    *("SENTRY_DSN", "REDIS_URL", "SSH_AUTH_SOCK", "VAULT_ADDR", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("aws_session_token", "CLOUDFLARE_EMAIL", "UV_PUBLISH_TOKEN"),
)
SECRETS = (
    *("HF_TOKEN", "WANDB_API_KEY", "NGC_API_KEY", "OPENAI_API_KEY", "MY_PASSWORD", "DB_PASSWD"),
    *(
        "MY_AWS_KEY",
        "CLIENT_SECRET",
        "SIGNING_KEY",
        "GIT_PAT",
        "SESSION_COOKIE",
        "BASIC_AUTH",
        "APIKEY",
    ),
)
HARMLESS = (
    *("IMAGE", "NODES", "MAX_TOKENS", "TOKENIZER", "TOKENIZERS_PARALLELISM", "AUTHOR", "KEYS"),
    *("PATTERN", "MONKEY", "PWD", "MODEL_PATH", "PGO", "TFLOPS", "ARMS", "SSHD"),
)
SECRET_VALUES = (
    "https://me:geheim@example.org/repo.git",
    "AKIAABCDEFGHIJKLMNOP",
    "ghp_0123456789abcdefghij",
    "hf_0123456789abcdefghij",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----",
)

TRAINJOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    image: team/train:1
    command: [train]
    env: [{name: ANYTHING, value: "${NAME}"}]
"""


def manifest(folder: Path, name: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(TRAINJOB.replace("NAME", name))
    return file


@pytest.mark.parametrize("name", [*CREDENTIALS, *SECRETS])
def test_a_placeholder_takes_nothing_that_is_sensitive_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "geheim-0123456789")
    file = manifest(tmp_path, name)
    with pytest.raises(InvalidFiles) as refused:
        load_run(file)
    assert str(refused.value) == (
        f"{file}:9:35: E227 'spec.trainer.env[0].value' has envsubst's placeholder ${{{name}}},"
        f" without a value; take the secret by `valueFrom: {{secretKeyRef: {{name: x, key: {name}}}"
        f"}}`, or add `--set {name}=VALUE`"
    )


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_placeholder_takes_nothing_that_is_sensitive_by_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SOURCE", value)
    with pytest.raises(InvalidFiles, match="take the secret by `valueFrom") as refused:
        load_run(manifest(tmp_path, "SOURCE"))
    assert "geheim" not in str(refused.value)
    assert value not in str(refused.value)


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "7")
    if name != "PWD":  # which every shell has
        assert load_run(manifest(tmp_path, name)).env == {"ANYTHING": "7"}
    assert may_leave_as_text(name, "7")
    assert hide_secrets(name, "7") == "7"


def test_what_the_user_sets_counts_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://me:geheim@db/x")
    given = Overrides(manifest=Substitutions(("DATABASE_URL=postgres://test/x",)))
    run = load_run(manifest(tmp_path, "DATABASE_URL"), given)
    assert run.env == {"ANYTHING": "postgres://test/x"}


@pytest.mark.parametrize("name", ["DATABASE_URL", "KUBECONFIG", "HF_TOKEN"])
def test_a_variable_with_its_own_name_is_a_secret_and_is_asked_for_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "geheim-0123456789")
    file = manifest(tmp_path, name)
    file.write_text(file.read_text().replace("ANYTHING", name))
    assert load_run(file).env == {name: Secret(secret=name)}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_credential_leaves_as_a_secret_only_after_a_question(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    assert credentials(make_plan(env={"X": {"secret": name}})) == (), "from a file that is for runs"
    monkeypatch.setenv(name, "geheim-0123456789")
    assert is_credential(name)
    assert credentials(make_plan(env={"X": {"secret": name}})) == (name,)
    notify = ({"command": "x", "env": {"X": {"secret": name}}},)
    assert credentials(make_plan(notify=notify)) == (name,)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_for_jobs_needs_no_question(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "geheim-0123456789")
    assert is_secret_name(name)
    assert credentials(make_plan(env={"X": {"secret": name}})) == ()


@pytest.mark.parametrize("name", [*CREDENTIALS, *SECRETS])
def test_what_is_kept_of_a_run_hides_the_same_names(name: str) -> None:
    assert hide_secrets(name, "geheim-0123456789") == "***"


def test_a_plan_of_a_head_takes_no_credential_as_a_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`heal` makes nodes of others' runs: their plans come from the head."""
    image = ImagePlan(reference="evil.example/x", username="me", password_secret="GH_TOKEN")
    monkeypatch.setenv("GH_TOKEN", "geheim-0123456789")
    with pytest.raises(InputError) as refused:
        registry_password(image)
    assert str(refused.value) == (
        "the run takes GH_TOKEN from your environment as the password for evil.example/x, and it is"
        " a credential of yours; let the `gpuctl run` that started the run make the node again"
    )
