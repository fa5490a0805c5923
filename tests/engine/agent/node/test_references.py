"""`${NAME}` in the variables of a run, as each node replaces it."""

import pytest

from engine.agent.node.login_environment import add_variables


@pytest.mark.parametrize(
    ("value", "replaced"),
    [
        ("/opt/x:${LD_LIBRARY_PATH}", "/opt/x:/usr/lib"),
        ("${LD_LIBRARY_PATH}:/opt/x", "/usr/lib:/opt/x"),
        ("/opt/x:${NONE}", "/opt/x"),
        ("${NONE}:/opt/x", "/opt/x"),
        ("a${NONE}b", "ab"),
        ("$LD_LIBRARY_PATH", "$LD_LIBRARY_PATH"),
        ("$${HOME}", "${HOME}"),
        ("$$${HOME}", "$/root"),
        ("$$$${HOME}", "$${HOME}"),
        ("${HOME}/${HOME}", "/root//root"),
        ("${}${0}${a b}${open", "${}${0}${a b}${open"),
        ("pa$$word", "pa$$word"),
        ("", ""),
    ],
)
def test_a_reference_is_the_value_on_the_node(value: str, replaced: str) -> None:
    environment = {"LD_LIBRARY_PATH": "/usr/lib", "HOME": "/root"}
    add_variables(environment, {"X": value})
    assert environment["X"] == replaced


def test_a_variable_sees_its_own_earlier_value_and_those_before_it() -> None:
    environment = {"PATH": "/bin"}
    add_variables(environment, {"ROOT": "/opt", "PATH": "${ROOT}/bin:${PATH}", "COPY": "${PATH}"})
    assert environment == {"PATH": "/opt/bin:/bin", "ROOT": "/opt", "COPY": "/opt/bin:/bin"}
