"""The site of the documentation builds without a warning, and its pages need no network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import HOME

FETCHED = re.compile(r"<(?:script|img|link)\b[^>]*?\b(?:src|href)=\"?(https?://[^\s\">]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs-site` does; a broken link or a page without a place fails it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=HOME, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(HOME / "docs") for path in (HOME / "docs").rglob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")} - {Path("404.html")}
    named = {"README.md": "index.html"}  # MkDocs names a folder's page as a server does
    assert built == {page.with_name(named.get(page.name, f"{page.stem}.html")) for page in pages}


def test_the_site_fetches_nothing_from_the_web(site: Path) -> None:
    fetched = {url for page in site.rglob("*.html") for url in FETCHED.findall(page.read_text())}
    assert fetched == set()


def test_the_search_finds_words_of_pages(site: Path) -> None:
    index = (site / "search/search_index.json").read_text()
    assert "placement group" in index and "do/capacity.html" in index
