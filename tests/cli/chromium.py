"""A headless Chromium without a network, which opens a page and says what it made of it."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest

from config.folders import cache_home

UNPACKED = cache_home() / "chromium"
"""Where `scripts/setup tests` has Chromium without installing it."""


@dataclass(frozen=True)
class Opened:
    """A page after its scripts ran: the document, and what the console and the network said."""

    dom: str
    complaints: list[str]
    screenshot: bytes

    def tables(self, name: str) -> list[list[list[str]]]:
        """Return the cells of the bodies of the tables with this class."""
        return self._read(name).tables

    @property
    def elements(self) -> set[str]:
        """The names of all elements; what scripts have in their text is none."""
        return self._read("").elements

    def _read(self, name: str) -> "_Reader":
        reader = _Reader(name)
        reader.feed(self.dom)
        return reader


def open_page(page: Path, folder: Path) -> Opened:
    """Open the page, and wait until its charts are drawn; `folder` is for the browser's files."""
    program, environment = _program()
    picture = folder / "screenshot.png"
    done = subprocess.run(
        [
            *(program, "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            "--host-resolver-rules=MAP * ~NOTFOUND",
            *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000"),
            *(f"--screenshot={picture}", "--window-size=1240,2400", "--dump-dom", page.as_uri()),
        ],
        env=environment, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    complaints = [
        line
        for line in done.stderr.splitlines()
        if re.search(r":CONSOLE|net_error|Uncaught|Refused", line)
    ]
    return Opened(done.stdout, complaints, picture.read_bytes())


def _program() -> tuple[str, dict[str, str]]:
    installed = shutil.which("chromium-headless-shell")
    if installed:
        return installed, dict(os.environ)
    program = UNPACKED / "usr/lib/chromium/chromium-headless-shell"
    if not program.exists():
        pytest.fail("Chromium is missing: scripts/setup tests")
    (libraries,) = (UNPACKED / "usr/lib").glob("*-linux-gnu")
    environment = os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{libraries}/pulseaudio"}
    if (UNPACKED / "etc/fonts").exists():  # a machine without fonts gets those of the package
        environment["FONTCONFIG_SYSROOT"] = str(UNPACKED)
    return str(program), environment


class _Reader(HTMLParser):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.tables: list[list[list[str]]] = []
        self._name, self._is_wanted, self._is_inside, self._is_cell = name, False, False, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        if tag == "table":
            self._is_wanted = dict(attrs).get("class") == self._name
            if self._is_wanted:
                self.tables.append([])
        elif tag == "tbody":
            self._is_inside = self._is_wanted
        elif tag == "tr" and self._is_inside:
            self.tables[-1].append([])
        elif tag == "td" and self._is_inside:
            self._is_cell = True
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._is_inside = False
        elif tag == "td":
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.tables[-1][-1][-1] += data
