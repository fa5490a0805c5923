"""`gpuctl explain`: codes and fields mean what the pages and the models say."""

import pytest

from config.catalogue.aws_codes import AWS_CODES
from config.errors import InputError
from config.explanation import Explanation, Field, documents, explain
from config.loading.codes import CODES


@pytest.mark.parametrize("code", CODES)
def test_a_diagnostic_has_its_example_and_remedy(code: str) -> None:
    explanation = explain(code)
    assert explanation.subject == "diagnostic"
    assert explanation.example == CODES[code].example
    assert explanation.meaning and explanation.remedy
    assert "](" not in explanation.reason + explanation.remedy


def test_links_name_their_page() -> None:
    assert explain("E221").remedy == (
        "Remove it, or choose another name; docs/look-up/modes.md lists them by type."
    )
    assert explain("E228").remedy == (
        "Change the file: the pages of dstack's (docs/do/dstack.md) and SkyPilot's tasks"
        " (docs/do/skypilot.md) and of Slurm's scripts (docs/do/slurm.md) have an answer to each"
        " key or option."
    )


@pytest.mark.parametrize("code", [*AWS_CODES, "InvalidAMIID.Malformed"])
def test_an_error_code_of_aws_has_its_remedy(code: str) -> None:
    explanation = explain(code)
    assert explanation.subject == "AWS error"
    assert explanation.meaning and explanation.remedy and explanation.reaction


def test_a_field_has_its_values_and_default() -> None:
    assert explain("cluster.capacity.type").field == Field(
        "type",
        "`on-demand` or `spot` or `reservation` or `capacity-block`",
        "`on-demand`",
        "`on-demand`: claimed whole before any node is launched; `spot`: may be taken back;"
        " `reservation`, `capacity-block`: into what you have reserved.",
    )


def test_a_field_of_some_run_types_names_them() -> None:
    field = explain("run.max_restarts").field
    assert field is not None
    assert field.types == ("torchrun",)


def test_a_mapping_has_its_keys() -> None:
    assert [key.name for key in explain("run.retry").keys] == [
        "attempts",
        "on",
        "backoff",
        "node_wait",
    ]
    assert "instance_type" in {key.name for key in explain("cluster").keys if key.is_required}


def test_names_of_yours_and_entries_of_lists_are_entered() -> None:
    assert explain("run.roles.worker.nodes").field == explain("run.roles.NAME.nodes").field
    webhook = explain("run.notify.webhook").field
    assert webhook is not None
    assert webhook.kind == "text or mapping"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("E999", "nothing is known of 'E999'; nearest: E249, E229, E219"),
        (
            "run.envv",
            "nothing is known of 'run.envv'; nearest: run.env, run.extends, run.type",
        ),
        (
            "vcpulimitexceded",
            "nothing is known of 'vcpulimitexceded'; nearest: VcpuLimitExceeded,"
            " VpcLimitExceeded, ServiceLimitExceeded",
        ),
        (
            "blah",
            "nothing is known of 'blah'; name a code (E101, VcpuLimitExceeded) or a field"
            " (run.env, cluster.capacity.type)",
        ),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        explain(name)
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_the_documentation_is_on_this_machine() -> None:
    assert (documents() / "index.md").is_file()
    assert isinstance(explain("E101"), Explanation)
    assert (documents().parent / explain("E101").page).is_file()
