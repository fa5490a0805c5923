from tests.nodes.conftest import site  # noqa: F401  a fixture is found by import
