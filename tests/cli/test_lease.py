"""How `up` gives a cluster its lease."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.lease import ask_for_lease
from cli.output import Output
from config.cluster.cluster_file import Cluster, Lifetime
from config.errors import InputError
from config.target import Target
from operations.chosen_target import ChosenTarget
from operations.lease import with_lifetime, without_lease
from provision.state.store import ClusterStore
from tests.provision.test_record import a_record

CLUSTER = Cluster.model_validate({"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"})
LEASED = CLUSTER.model_copy(update={"lifetime": Lifetime.model_construct(max=3600)})
WARNING = (
    "gpuctl: warning: cluster demo has no lease: it ends only with `gpuctl down demo`; set"
    " `lifetime` in its file, or say --no-lease\n"
)
QUESTION = (
    "demo: its file has no `lifetime`. After how long does the cluster end (8h; none for never)? "
)


@pytest.fixture
def here(remembered: Target) -> ChosenTarget:
    return ChosenTarget()


def keep(cluster: Cluster, here: ChosenTarget) -> None:
    """Write a record of the cluster."""
    record = a_record("demo")
    resolved = record.resolved.model_copy(update={"cluster": cluster})
    ClusterStore(here.remembered()).write(record.model_copy(update={"resolved": resolved}))


@pytest.mark.parametrize("yes", [True, False])
def test_without_a_terminal_a_warning(here: ChosenTarget, yes: bool) -> None:
    with CliRunner().isolation(input="8h\n") as (_, stderr, _):
        assert ask_for_lease(here, CLUSTER, Output(), yes=yes) == CLUSTER
    assert stderr.getvalue().decode() == WARNING


def test_yes_asks_nothing_on_a_terminal(
    here: ChosenTarget, type_in: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    type_in("8h\n")
    assert ask_for_lease(here, CLUSTER, Output(), yes=True) == CLUSTER
    assert capsys.readouterr().err == WARNING


@pytest.mark.parametrize(("answer", "seconds"), [("8h\n", 28800), (" 2d \n", 172800)])
def test_an_answer_is_the_lease(
    here: ChosenTarget,
    type_in: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    answer: str,
    seconds: int,
) -> None:
    type_in(answer)
    asked = ask_for_lease(here, CLUSTER, Output(), yes=False)
    assert asked.lifetime == Lifetime.model_construct(max=seconds)
    assert capsys.readouterr().err == QUESTION


def test_none_is_an_answer(here: ChosenTarget, type_in: Callable[[str], None]) -> None:
    type_in("none\n")
    assert ask_for_lease(here, CLUSTER, Output(), yes=False) == CLUSTER


@pytest.mark.parametrize("answer", ["", "\n", "yes\n", "8\n"])
def test_another_answer_creates_nothing(
    here: ChosenTarget, type_in: Callable[[str], None], answer: str
) -> None:
    type_in(answer)
    with pytest.raises(InputError) as refused:
        ask_for_lease(here, CLUSTER, Output(), yes=False)
    assert str(refused.value) == (
        "the end of cluster demo must be a whole number (at most 6 digits) and a unit: s, m, h or"
        " d (30m, 8h); repeat `up`, set `lifetime: {max: 8h}` in the file, or say --no-lease"
    )


@pytest.mark.parametrize("kept", [CLUSTER, LEASED])
def test_a_cluster_that_exists_keeps_its_lease_unasked(
    here: ChosenTarget,
    type_in: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    kept: Cluster,
) -> None:
    """Its answer is in no file, and another one would replace the nodes."""
    type_in("2h\n")
    keep(kept, here)
    assert with_lifetime(here, CLUSTER) == kept
    assert ask_for_lease(here, kept, Output(), yes=False) == kept
    assert capsys.readouterr().err == ""


def test_no_lease_contradicts_a_file_with_one(here: ChosenTarget, tmp_path: Path) -> None:
    assert without_lease(CLUSTER) == CLUSTER
    with pytest.raises(InputError) as refused:
        without_lease(LEASED)
    assert str(refused.value) == (
        "--no-lease contradicts `lifetime` in the file of cluster demo; remove one of them"
    )
