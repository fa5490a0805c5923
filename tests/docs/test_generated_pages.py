"""The generated parts of pages say what the code does."""

import pytest

from config import file_reference
from config.generated_page import GeneratedPage
from engine.plan import mode_reference
from gpuctl import reference as python_reference
from provision.health import reference as health_reference

PAGES = [
    *file_reference.pages(),
    *mode_reference.pages(),
    python_reference.page(),
    health_reference.page(),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_generated(page: GeneratedPage) -> None:
    assert page.path.read_text().count(page.marker) == 1
    assert page.path.read_text() == page.text(), "run `make docs`"
