"""The targets of a run's notifications, as the head gets them, and the check of their secrets."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from config.errors import InputError
from config.run.env import Secret
from config.run.notify import SLACK_HOSTS, Email, Notify, url_mistake
from engine.contract.plan import NotifyPlan


def notify_plan(target: Notify) -> NotifyPlan:
    """Return the plan of one entry of `notify`."""
    if target.email is not None:
        return _email_plan(target.email, target)
    named = target.env if target.command else target.headers
    to = target.command or target.webhook
    assert to is not None  # config.run.notify.py
    return NotifyPlan(
        form="command" if target.command else target.form,
        to="" if isinstance(to, Secret) else to,
        to_secret=to.secret if isinstance(to, Secret) else "",
        values={name: value for name, value in named.items() if isinstance(value, str)},
        secrets={name: value.secret for name, value in named.items() if isinstance(value, Secret)},
        on=target.on,
    )


def _email_plan(email: Email, target: Notify) -> NotifyPlan:
    return NotifyPlan(
        form="email",
        to=f"{email.host}:{email.port}",
        values={"sender": email.sender, "to": ",".join(email.to)},
        secrets={"user": email.user.secret, "password": email.password.secret},
        on=target.on,
    )


def secret_names(targets: tuple[NotifyPlan, ...]) -> set[str]:
    """Return the names of the secrets that notifications need."""
    names = {secret for target in targets for secret in target.secrets.values()}
    return names | {target.to_secret for target in targets if target.to_secret}


def check_secrets(targets: tuple[NotifyPlan, ...], values: Mapping[str, str]) -> None:
    """Raise InputError for a secret that cannot be a webhook's URL, a header or an SMTP login.

    The messages do not have the value.
    """
    for index, target in enumerate(targets):
        if target.form == "command":
            continue
        if target.to_secret:
            _check_url(f"notify[{index}]", target, values[target.to_secret])
        for name, secret in target.secrets.items():
            if not (values[secret].isascii() and values[secret].isprintable()):
                key = "email" if target.form == "email" else "headers"
                place = f"notify[{index}].{key}.{name}"
                message = f"secret {secret} ({place}) is not one line of ASCII"
                raise InputError(message, "set it to what the server expects")


def _check_url(place: str, target: NotifyPlan, url: str) -> None:
    wrong = url_mistake(url)
    if wrong:
        message = f"secret {target.to_secret} ({place}.webhook) has a value {wrong[0]}"
        raise InputError(message, f"set it to the webhook's URL: {wrong[1]}")
    if urlsplit(url).hostname in SLACK_HOSTS and target.form != "slack":
        message = f"secret {target.to_secret} ({place}.webhook) is a webhook of Slack"
        raise InputError(message, f"write `form: slack`; {place}.form is json")
