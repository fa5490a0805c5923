"""The redaction of secrets: their values are replaced in the output of a job.

A value is also found in the encodings in which programs print it (`forms`), and so is each line of
a value of several lines.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator

SHOWN = "***"
SHORTEST = 8  # characters; what is shorter is found in harmless text too often
_WRAPPED_AT = (64, 76)
"""Characters of a line of base64: PEM (RFC 7468), MIME and `base64` of coreutils (RFC 2045)."""
_URL_SAFE = "-._~"  # RFC 3986, section 2.3
_OF_COMPONENTS = "!'()*"  # encodeURIComponent of ECMAScript leaves these too


def forms(value: str) -> set[str]:
    """Return the texts that show the value: itself, its lines, and its usual encodings.

    Texts with fewer characters than SHORTEST are omitted.
    """
    lines = {line.strip() for line in value.splitlines()}
    known = {value, *lines, *_base64(value), *_percent(value), *_hexadecimal(value)}
    for text in (value, *lines):
        known.update(_quoted(text))
    return {text for text in known if len(text) >= SHORTEST}


def _quoted(text: str) -> Iterator[str]:
    """Yield the text as JSON, Python and shells write it between their quotes."""
    for as_json in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        inner = as_json[1:-1]
        yield inner
        yield json.dumps(inner)[1:-1]  # JSON as a text of JSON
        yield inner.replace("/", "\\/")  # PHP
        # Go's encoding/json
        yield re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", inner)
    yield repr(text)[1:-1]
    yield repr(text.encode(errors="surrogateescape"))[2:-1]
    yield from _in_html(text)
    yield text.replace("'", "'\"'\"'")  # Python's shlex.quote
    yield text.replace("'", "'\\''")  # `set -x`
    yield re.sub(r'([$`"\\])', r"\\\1", text)  # in double quotes: `export -p`
    yield re.sub(r"([ '\"\\|&;()<>!{}*\[\]?^$`,])", r"\\\1", text)  # `printf %q`
    control: dict[str, str | int | None] = {
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "'": "\\'",
        "\\": "\\\\",
    }
    yield text.translate(str.maketrans(control))  # $'…' of bash


def _in_html(text: str) -> Iterator[str]:
    """Yield the text as HTML and XML write it, with the quotes of Python, Go and XML."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield plain
    for double, single in (("&quot;", "&#x27;"), ("&#34;", "&#39;"), ("&quot;", "&apos;")):
        yield plain.replace('"', double).replace("'", single)


def _hexadecimal(text: str) -> Iterator[str]:
    """Yield the text's bytes in hexadecimal digits, also as openssl and od separate them."""
    data = text.encode(errors="surrogateescape")
    for digits in (data.hex(), data.hex(":"), data.hex(" ")):
        yield digits
        yield digits.upper()


def _percent(text: str) -> Iterator[str]:
    """Yield the text as it is written in URLs and forms."""
    data = text.encode(errors="surrogateescape")
    for safe in (_URL_SAFE, f"{_URL_SAFE}/", f"{_URL_SAFE}{_OF_COMPONENTS}"):
        for digits in ("%%%02X", "%%%02x"):
            encoded = re.sub(
                rb"[^A-Za-z0-9%s]" % re.escape(safe).encode(),
                lambda match, digits=digits: (digits % match[0][0]).encode(),  # type: ignore[misc]
                data,
            ).decode()
            yield encoded
            yield encoded.replace("%20", "+")


def _base64(value: str) -> Iterator[str]:
    """Yield what base64 of any text with the value in it has, with both alphabets."""
    data = value.encode(errors="surrogateescape")
    for encoded in _of_whole(data):
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")


def _of_whole(data: bytes) -> Iterator[str]:
    for end in (b"", b"\n"):  # `echo $TOKEN | base64` encodes a line end too
        whole = b2a_base64(data + end, newline=False).decode()
        yield whole
        yield whole.rstrip("=")
        for width in _WRAPPED_AT:
            if len(whole) > width:
                yield from (whole[at : at + width] for at in range(0, len(whole), width))
    # Inside another text (`USER:PASSWORD`): only the digits that the value alone decides.
    for before in range(3):
        digits = b2a_base64(bytes(before) + data, newline=False).decode()
        yield digits[-(-8 * before // 6) : 8 * (before + len(data)) // 6]


class Redaction:
    """One stream of text without the values, also if pieces of the text split them.

    Values that overlap in the text are one `***`.
    """

    def __init__(self, values: Iterable[str]) -> None:
        known = {form for value in values if len(value) >= SHORTEST for form in forms(value)}
        self._longest = max(map(len, known), default=0)
        self._beginnings = {form[:size] for form in known for size in range(1, SHORTEST)}
        self._by_head: dict[str, list[str]] = {}
        for form in sorted(known, key=len, reverse=True):
            self._by_head.setdefault(form[:SHORTEST], []).append(form)
        self._held = ""
        self._covered = 0  # characters of what is held that the last `***` replaces

    def feed(self, text: str) -> str:
        """Return the redacted text so far, except for an end that may begin a value."""
        if not self._by_head:
            return text
        text = self._held + text
        places, undecided = self._search(text)
        return self._redact(text, places, undecided)

    def rest(self) -> str:
        """Return the text that was held back, at the end of the stream."""
        text = self._held
        return self._redact(text, self._search(text)[0], len(text))

    def _redact(self, text: str, places: list[tuple[int, int]], undecided: int) -> str:
        """Return the redacted text before the place `undecided`, and hold the rest."""
        shown, covered = "", self._covered
        for start, end in places:
            if start >= undecided:
                break
            if start >= covered:  # values that only touch are two
                shown += text[covered:start] + SHOWN
            covered = max(covered, end)
        shown += text[covered:undecided]
        self._held = text[undecided:]
        self._covered = max(covered - undecided, 0)
        return shown

    def _search(self, text: str) -> tuple[list[tuple[int, int]], int]:
        """Return where values begin and end, in the order of the text; and the undecided place.

        From that place on the text may begin a longer value. It is the text's end if there is none.
        """
        places, undecided = [], len(text)
        last = len(text) - self._longest  # a value that begins here ends in the text
        for size in range(min(SHORTEST - 1, len(text)), 0, -1):
            if text[-size:] in self._beginnings:
                undecided = len(text) - size
                break
        for head, values in self._by_head.items():
            start = text.find(head)
            while start >= 0:
                whole = next((value for value in values if text.startswith(value, start)), "")
                if whole:
                    places.append((start, start + len(whole)))
                if last < start < undecided:
                    tail = text[start:]
                    if any(len(v) > len(tail) and v.startswith(tail) for v in values):
                        undecided = start
                start = text.find(head, start + 1)
        return sorted(places), undecided
