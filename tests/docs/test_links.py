"""Links lead to a page and a heading that exist, and paths to files that exist."""

import re

import pytest

from tests.docs.pages import GENERATED, HOME, PAGES, spans

_ROOMS = "cli|config|docs|engine|formats|gpuctl|infra|lab|nodes|operations|provision|scripts|stacks"
_ROOMS += "|tests"
_PATH = re.compile(rf"({_ROOMS})/[\w./-]*")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def _anchors(page: str) -> set[str]:
    """Return the names that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", (HOME / page).read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in plain}


@pytest.mark.parametrize("page", [*PAGES, *GENERATED])
def test_links_lead_somewhere(page: str) -> None:
    broken = []
    for link in _LINK.findall((HOME / page).read_text()):
        path, _, anchor = link.partition("#")
        target = ((HOME / page).parent / path).resolve() if path else HOME / page
        if "://" in link or (target.exists() and not anchor):
            continue
        if not target.exists() or anchor not in _anchors(str(target.relative_to(HOME))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    named = {text for _, text in spans(page) if _PATH.fullmatch(text)}
    assert sorted(path for path in named if not (HOME / path).exists()) == []
