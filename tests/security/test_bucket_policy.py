"""The policy of docs/understand/bucket.md, which keeps members from each other's objects."""

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

import pytest
from policy_sentry.querying.actions import get_action_data

from provision.state import shared
from tests.cli.test_shared_journals import RUN, Team, done, finish, follow
from tests.security.test_bucket import team as team  # noqa: PLC0414  a fixture

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/understand/bucket.md"
BUCKET = "arn:aws:s3:::team-gpus/"


def policy() -> dict[str, Any]:
    (text,) = re.findall(r'```\n(\{"Version": "2012-10-17".*?)```', PAGE.read_text(), re.S)
    document: dict[str, Any] = json.loads(text)
    return document


def allows(action: str, key: str, *, conditional: bool = False, tag: str = "") -> bool:
    """Return whether the policy allows the action of a principal with this tag on the key."""
    for statement in policy()["Statement"]:
        actions, resources = statement["Action"], statement["Resource"]
        resources = [resources] if isinstance(resources, str) else resources
        variable = "${aws:PrincipalTag/gpuctl}"
        if not tag:  # a statement with a variable that has no value matches nothing
            resources = [one for one in resources if variable not in one]
        names = [one.replace(variable, tag) for one in resources]
        if (
            action in ([actions] if isinstance(actions, str) else actions)
            and any(fnmatch.fnmatchcase(BUCKET + key, name) for name in names)
            and (conditional or "Condition" not in statement)
        ):
            return True
    return False


def test_actions_and_condition_keys_are_those_of_s3() -> None:
    for statement in policy()["Statement"]:
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            service, name = action.split(":")
            (known,) = get_action_data(service, name)[service][:1]
            for condition in statement.get("Condition", {}).values():
                assert set(condition) <= set(known["condition_keys"])


def test_a_member_reads_everything_of_the_team() -> None:
    for key in ("gpuctl/runs/a-000000/end", "gpuctl/clusters/ben-demo/cluster.json"):
        assert allows("s3:GetObject", key)
    assert allows("s3:GetObject", ".pulumi/stacks/gpuctl/ben-demo.json")


@pytest.mark.parametrize("file", [*shared.FILES, shared.LOCK_FILE])
def test_a_member_changes_own_clusters_alone(file: str) -> None:
    for action in ("s3:PutObject", "s3:DeleteObject"):
        assert allows(action, f"gpuctl/clusters/anna-demo/{file}", tag="anna")
        assert allows(action, ".pulumi/stacks/gpuctl/anna-demo.json", tag="anna")
        assert allows(action, ".pulumi/locks/organization/gpuctl/anna-demo/1.json", tag="anna")
        assert not allows(action, f"gpuctl/clusters/ben-demo/{file}", tag="anna", conditional=True)
        assert not allows(action, ".pulumi/stacks/gpuctl/ben-demo.json", tag="anna")
        assert not allows(action, f"gpuctl/clusters/anna-demo/{file}", conditional=True)


@pytest.mark.parametrize("key", ["runs/a-000000/end", "journals/a-000000/journal.jsonl"])
def test_runs_are_written_once_and_never_removed(key: str) -> None:
    assert allows("s3:PutObject", f"gpuctl/{key}", conditional=True)
    assert not allows("s3:PutObject", f"gpuctl/{key}", tag="anna")
    assert not allows("s3:DeleteObject", f"gpuctl/{key}", tag="anna", conditional=True)


def texts(team: Team) -> list[str]:
    return [key for key in team.objects.keys("gpuctl/") if not key.endswith(".gz")]


def test_gpuctl_replaces_no_run_and_no_journal(team: Team) -> None:
    follow(team.runs("anna"))
    finish(team.runs("anna"), done)
    assert team("anna", "ps").exit_code == 0
    before = {key: team.objects.read(key) for key in texts(team)}
    assert f"gpuctl/journals/{RUN}/journal.jsonl" in before
    team.objects.remove(f"gpuctl/journals/{RUN}/journal.jsonl")
    (team.runs("anna") / RUN / "evidence" / "node1" / "ping.txt").write_text("changed")
    assert team("anna", "ps").exit_code == 0
    after = {key: team.objects.read(key) for key in texts(team)}
    assert {key: stored and stored.text for key, stored in after.items()} == {
        key: stored and stored.text for key, stored in before.items()
    }
