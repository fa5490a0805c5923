"""The region in which everything is planned and made, several clusters at once."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from config.target import Target
from lab import fault_table
from provision.permissions.actions import needed
from provision.permissions.policy import policy, split
from tests.infra.region import client, create_boundary, region
from tests.plans.cases import Case
from tests.plans.life import AT_ONCE, REGION, Life, live


@pytest.fixture(scope="session")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    state = tmp_path_factory.mktemp("plans")
    (state / "requests").mkdir()
    # Everything is planned, made and removed with the least permissions.
    allowed = state / "policy.json"
    allowed.write_text(json.dumps(split(policy(needed(("plan", "up", "down"))))))
    fault_table.write(state / "faults.json", {fault_table.POLICY: (str(allowed),)})
    with region(state) as here:
        create_boundary(here.target)
        yield replace(here.target, region=REGION)


@pytest.fixture(scope="session")
def life_of(request: pytest.FixtureRequest, west: Target) -> Iterator[Callable[[Case], Life]]:
    """The life of a case's cluster. Those of all selected tests begin at once, in their order."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    # Each case once: two tests of a case share its cluster.
    cases = dict.fromkeys(call.params["case"] for call in calls if call and "case" in call.params)
    ec2 = client(west)  # made once: boto3 does not make clients in many threads
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="life") as pool:
        lives: dict[Case, Future[Life]] = {
            case: pool.submit(live, case, west, ec2) for case in cases if isinstance(case, Case)
        }
        yield lambda case: lives[case].result()
        pool.shutdown(cancel_futures=True)
