"""The types of names that come from others: what each accepts, and what it refuses."""

import pytest
from pydantic import TypeAdapter, ValidationError

from config.identifiers import (
    BUCKET_KEY,
    CLUSTER_NAME,
    INSTANCE_ID,
    NODE_NAME,
    RUN_ID,
    RUN_NAME,
    SSH_HOST,
    SSH_USER,
    BucketKey,
    ClusterName,
    InstanceId,
    NodeName,
    RunId,
    RunName,
    SshHost,
    SshUser,
    is_valid,
)
from engine.plan.launch_plan import new_run_id

TYPES = {
    "RunId": (RunId, RUN_ID),
    "RunName": (RunName, RUN_NAME),
    "ClusterName": (ClusterName, CLUSTER_NAME),
    "NodeName": (NodeName, NODE_NAME),
    "BucketKey": (BucketKey, BUCKET_KEY),
    "SshHost": (SshHost, SSH_HOST),
    "SshUser": (SshUser, SSH_USER),
    "InstanceId": (InstanceId, INSTANCE_ID),
}

GOOD = (
    ("RunId", "train-4f2a1c"),
    ("RunId", f"{'a' * 41}-000000"),
    ("RunName", "nccl-tests"),
    ("ClusterName", "demo"),
    ("NodeName", "node0"),
    ("BucketKey", "journal.jsonl"),
    ("BucketKey", "evidence/node0/dmesg.txt"),
    ("SshHost", "10.0.0.1"),
    ("SshHost", "fe80::1"),
    ("SshHost", "::1"),
    ("SshHost", "ec2-1-2-3-4.compute-1.amazonaws.com"),
    ("SshUser", "ubuntu"),
    ("InstanceId", "i-0123456789abcdef0"),
)

HOSTILE = (
    "",
    ".",
    "..",
    "../../x",
    "../../x-000000",
    "/etc/passwd",
    "a/../../b-000000",
    "-oProxyCommand=id",
    "a b-000000",
    "a;id-000000",
    "$(id)-000000",
    "a\n-000000",
    "a-000000\n",
    "a-000000\nProxyCommand id",
    "a\x00-000000",
    "a\r-000000",
    "a%00-000000",
    "é-000000",
    "a-\u0660\u0660\u0660\u0660\u0660\u0660",
    "a\u2028b",
    "~root",
    "a//b",
    "a/",
    "a\\b",
    "*",
    "a" * 2000,
)


@pytest.mark.parametrize(("kind", "text"), GOOD)
def test_type_accepts_a_name_of_ours(kind: str, text: str) -> None:
    accepted, pattern = TYPES[kind]
    assert TypeAdapter(accepted).validate_python(text) == text
    assert is_valid(text, pattern)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("kind", TYPES)
def test_type_refuses_a_hostile_name(kind: str, text: str) -> None:
    refused, pattern = TYPES[kind]
    with pytest.raises(ValidationError):
        TypeAdapter(refused).validate_python(text)
    assert not is_valid(text, pattern)


@pytest.mark.parametrize("name", ["saved", "bisects", "runs.sqlite", "train-1", "train-4F2A1C"])
def test_run_id_is_no_other_name_in_a_folder_of_runs(name: str) -> None:
    assert not is_valid(name, RUN_ID)


@pytest.mark.parametrize("value", [None, 3, b"train-4f2a1c", ["train-4f2a1c"]])
def test_a_value_that_is_no_text_is_no_name(value: object) -> None:
    assert not is_valid(value, RUN_ID)


def test_ids_of_new_runs_are_run_ids() -> None:
    assert is_valid(new_run_id("a"), RUN_ID)
    assert is_valid(new_run_id("a" * 41), RUN_ID)
