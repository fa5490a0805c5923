"""What the history keeps of a run's setting: no secret, also where nobody called it one."""

from pathlib import Path

import pytest

from config.sensitive import hide_secrets
from engine.record.history import History
from engine.record.run_context import setting
from tests.engine.conftest import make_inventory, make_plan


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("NCCL_DEBUG", "INFO", "INFO"),
        ("NCCL_ALGO", "Ring,Tree", "Ring,Tree"),
        ("HF_TOKEN", "abc", "***"),
        ("WANDB_API_KEY", "abc", "***"),
        ("DB_PASSWORD", "abc", "***"),
        ("AWS_ACCESS_KEY_ID", "abc", "***"),
        ("DATA", "https://me:abc@example.org/x", "https://***@example.org/x"),
        ("ARGS", "--key AKIAABCDEFGHIJKLMNOP --n 1", "--key *** --n 1"),
        ("ARGS", "hf_abcdefghijklmnopqrst", "***"),
        ("ARGS", "-----BEGIN RSA PRIVATE KEY-----\nabc", "***"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(name: str, value: str, kept: str) -> None:
    assert hide_secrets(name, value) == kept


def test_a_setting_has_what_all_nodes_share_and_the_names_of_secrets(tmp_path: Path) -> None:
    env = {"NCCL_DEBUG": "INFO", "MY_TOKEN": "hush", "DATA_KEY": {"secret": "WAREHOUSE"}}
    plan = make_plan(env=env, image="team/train:1")
    found = setting(plan, make_inventory(2))
    assert (found.region, found.zone) == ("us-east-1", "us-east-1a")
    assert (found.instance_type, found.type, found.image) == (
        "p4d.24xlarge",
        "task",
        "team/train:1",
    )
    assert found.environment["NCCL_DEBUG"] == "INFO"
    assert "DSTACK_NODE_RANK" not in found.environment  # it differs between the nodes
    assert found.secrets == ("DATA_KEY",)
    assert "hush" not in found.model_dump_json()
    with History(tmp_path) as history:
        history.begin(plan, found)
        assert history.setting(plan.run_id) == found
        assert history.setting("job-000009") is None
    assert b"hush" not in (tmp_path / "runs.sqlite").read_bytes()
