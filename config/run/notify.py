"""`notify` of a run file: whom the head notifies of a run's events, and how.

Slack's webhooks take the form `slack`: docs/do/notifications.md has both forms.

Rules that need more than one of its keys take raw data, and give mistakes.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, Tag, WithJsonSchema

from config.cluster.cluster_file import Command
from config.cluster.cluster_rules import Data
from config.mistakes import Mistake, Path, refusal
from config.models import BY_SHAPE, MAPPING, SCALAR, Model
from config.run.env import Env, Secret

NotifyEvent = Literal[
    "start", "retry", "waiting", "interruption", "notice", "lease", "budget", "failure", "end"
]
EVENTS: tuple[NotifyEvent, ...] = (
    "start",
    "retry",
    "waiting",
    "interruption",
    "notice",
    "lease",
    "budget",
    "failure",
    "end",
)
MOST_TARGETS = 10
HEADER = "[A-Za-z0-9-]{1,64}"
SLACK_HOSTS = ("hooks.slack.com", "hooks.slack-gov.com")
MAIL_HOST = r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$"
MAIL_ADDRESS = r"^[A-Za-z0-9._%+=-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$"
NOTIFY_FORMS = {
    MAIL_HOST: "a host's name or IPv4 address, without a port",
    MAIL_ADDRESS: "one address such as me@example.com, without a name",
}
_INSIDE = (".local", ".localhost", ".internal", ".lan", ".home.arpa")


def url_mistake(url: str) -> tuple[str, str] | None:
    """Return message and hint if notifications cannot be sent to the URL; else None.

    The texts have nothing of the URL but its host, because a URL may be a secret.
    """
    hint = "write an address such as https://example.com/hook"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port  # checks it
    except ValueError:
        return "which is no URL", hint
    if not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
        return "which is no URL", hint
    if parts.scheme not in ("http", "https") or not host:
        return "which does not begin with https:// and a host", hint
    if "@" in parts.netloc:
        hint = "write `headers: {Authorization: {secret: NAME}}`"
        return "which has a user or a password in it", hint
    if parts.scheme == "http" and not _is_inside(host):
        return f"which sends over http:// to the public host {host}", "write https://"
    return None


def _is_inside(host: str) -> bool:
    """Return whether the host is this machine or one of a private network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_INSIDE)
    return address.is_private


def _plain_url(url: str) -> str:
    wrong = url_mistake(url)
    if wrong is None and urlsplit(url).hostname in SLACK_HOSTS:
        who = "which is a secret: whoever has it can write to the channel"
        wrong = who, "write {secret: NAME} for the secret of that name"
    if wrong:
        raise refusal(Mistake("E244", *wrong))
    return url


def _checked_headers(headers: dict[str, Any]) -> dict[str, Any]:
    mistakes = []
    for name, value in headers.items():
        if not re.fullmatch(HEADER, name):
            message, hint = "is no name of a header", "use letters, digits and -"
            mistakes.append(Mistake("E203", message, hint, (name,)))
        elif isinstance(value, str) and not (value.isascii() and value.isprintable()):
            message, hint = "is not one line of ASCII", "write one line, or {secret: NAME}"
            mistakes.append(Mistake("E203", message, hint, (name,)))
    if mistakes:
        raise refusal(*mistakes)
    return headers


def _not_blank(command: str) -> str:
    if not command.strip():
        raise refusal(Mistake("E203", "which is blank", "write a shell command"))
    return command


_TEXT = {"type": "string"}
_SECRET = {
    "type": "object",
    "properties": {"secret": _TEXT},
    "required": ["secret"],
    "additionalProperties": False,
}
Webhook = Annotated[
    Annotated[str, AfterValidator(_plain_url), Tag(SCALAR)] | Annotated[Secret, Tag(MAPPING)],
    BY_SHAPE,
    WithJsonSchema({"anyOf": [_TEXT, _SECRET]}),
]
HeaderValue = Annotated[
    Annotated[str, Tag(SCALAR)] | Annotated[Secret, Tag(MAPPING)],
    BY_SHAPE,
    WithJsonSchema({"anyOf": [_TEXT, _SECRET]}),
]
Headers = Annotated[dict[str, HeaderValue], AfterValidator(_checked_headers)]


class Email(Model):
    """An e-mail by an SMTP server, such as that of Amazon SES, over TLS."""

    host: Annotated[str, Field(pattern=MAIL_HOST)] = Field(
        description="The server: of SES `email-smtp.REGION.amazonaws.com`."
    )
    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        default=587,
        description="Its port. 465 and 2465 begin with TLS, all others with STARTTLS.",
    )
    sender: Annotated[str, Field(pattern=MAIL_ADDRESS)] = Field(
        description="The sender's address, which SES has to know."
    )
    to: tuple[Annotated[str, Field(pattern=MAIL_ADDRESS)], ...] = Field(
        min_length=1, max_length=MOST_TARGETS, description="Who gets it."
    )
    user: Secret = Field(description="The SMTP user: `{secret: NAME}`.")
    password: Secret = Field(description="The SMTP password: `{secret: NAME}`.")


class Notify(Model):
    """A target of notifications: a webhook, a command on the head, or an e-mail."""

    webhook: Webhook | None = Field(
        default=None,
        description="A URL that gets a POST: `{secret: NAME}`, or `https://…` if it is no secret.",
    )
    form: Literal["json", "slack"] = Field(
        default="json", description="The body of the POST: JSON with all fields, or Slack's."
    )
    headers: Headers = Field(
        default={}, description="Headers of the POST; a value may be `{secret: NAME}`."
    )
    command: Annotated[Command, AfterValidator(_not_blank)] | None = Field(
        default=None,
        description="A shell command on the head, as root; it gets the JSON on stdin.",
    )
    env: Env = Field(
        default={}, description="Variables of the command; a value may be `{secret: NAME}`."
    )
    email: Email | None = Field(default=None, description="An e-mail by an SMTP server.")
    on: tuple[NotifyEvent, ...] = Field(
        default=EVENTS,
        min_length=1,
        description="The events of which it is notified; by default all of these.",
    )


RunNotify = Annotated[
    tuple[Notify, ...],
    Field(max_length=MOST_TARGETS, description="Whom the head notifies of the run's events."),
]


OWN_PREFIX = "GPUCTL_"
"""The beginning of the variables that gpuctl sets for a command."""

_NEEDS = {"form": "webhook", "headers": "webhook", "env": "command"}


def notify_mistakes(data: Data) -> Iterator[Mistake]:
    """Yield the mistakes in the targets of `notify`; wrong types are the model's matter."""
    targets = data.get("notify")
    for index, target in enumerate(targets if isinstance(targets, tuple) else ()):
        if isinstance(target, dict):
            at: Path = ("notify", index)
            yield from _target(target, f"notify[{index}]", at)
            yield from _variables(target.get("env"), f"notify[{index}].env", at)


def _target(target: dict[Any, Any], name: str, at: Path) -> Iterator[Mistake]:
    has = [key for key in ("webhook", "command", "email") if target.get(key) is not None]
    if not has:
        hint = "add `webhook: {secret: NAME}`, `command: …` or `email: {…}`"
        yield Mistake("E102", f"'{name}' has no webhook, command or email", hint, at)
        return
    if has[1:]:
        hint = "write an entry of `notify` for each"
        yield Mistake("E223", f"'{name}' has {' and '.join(has)}", hint, (*at, has[1]))
        return
    for key, needs in _NEEDS.items():
        if key in target and has != [needs]:
            message = f"'{name}.{key}' has no effect: there is no '{needs}'"
            yield Mistake("E223", message, "remove it", (*at, key), on_key=True)


def _variables(env: Any, name: str, at: Path) -> Iterator[Mistake]:
    """Yield a mistake for each variable that gpuctl sets itself."""
    is_mapping = isinstance(env, dict)
    entries = env if isinstance(env, (dict, tuple)) else ()
    for index, entry in enumerate(entries):
        variable = entry.partition("=")[0] if isinstance(entry, str) else ""
        if variable.startswith(OWN_PREFIX):
            message = f"'{variable}' cannot be set in '{name}': gpuctl sets variables of that form"
            place = entry if is_mapping else index
            hint = "choose another name"
            yield Mistake("E221", message, hint, (*at, "env", place), on_key=is_mapping)
