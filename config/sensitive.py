"""What of the user's environment is sensitive: the one list for every way out of this machine.

A file may come from a stranger, and ask for any variable by name. There are two ways out:
- As text (a placeholder of a manifest), which plans and journals print. Nothing that is sensitive
  by its name or its value leaves so; `may_leave_as_text`.
- As a secret (`{secret: NAME}`), which is masked and kept nowhere. gpuctl asks before a credential
  of the user's own accounts leaves so (`is_credential`); other secrets, such as HF_TOKEN, are meant
  for jobs.
"""

import os
import re

HIDDEN = "***"
_SHORTEST = 6  # characters of a value to hide

_CREDENTIAL = re.compile(
    r"(AWS|AZURE|ARM|GOOGLE|GCP|GCLOUD|CLOUDSDK|OCI|CLOUDFLARE|DIGITALOCEAN|HCLOUD|SCW)_.*"
    r"|(PULUMI|TF|VAULT|SSH|GPG|HELM|DOCKER|DATABASE|POSTGRES|MYSQL|MONGO|MONGODB|REDIS)_.*"
    r"|(GITHUB|GH|GITLAB|NPM|NODE_AUTH|PYPI|TWINE|UV_PUBLISH|CARGO|SLACK)_.*"
    r"|KUBE.*|PG(HOST|PORT|USER|PASSWORD|PASSFILE|SERVICE|DATABASE)|.*_DATABASE_URL|.*_DSN|NETRC",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"TOKEN(?!S|IZ)|SECRET|PASS(WORD|WD|PHRASE)|CREDENTIAL|AUTH(?!OR)|(API|ACCESS|PRIVATE)_?KEY"
    r"|_KEY$|_(PASS|PWD|PAT|COOKIE|JWT)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"(?<=://)[^/\s@]+(?=@)"  # user and password of a URL
    r"|\b(AKIA|ASIA)[A-Z0-9]{16}\b|\b(gh[a-z]|hf|glpat|xox[a-z]|sk|pk)[_-][A-Za-z0-9_-]{16,}"
    r"|\beyJ[\w-]+\.[\w.-]+|-----BEGIN [^-]*PRIVATE KEY-----[\s\S]*"
)
"""The beginnings of access keys of AWS, of tokens of well-known services, of JSON web tokens."""


def is_credential(name: str) -> bool:
    """Return whether a variable of this name gives access to the user's own accounts."""
    return bool(_CREDENTIAL.fullmatch(name))


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name has a secret, also a credential."""
    return bool(_SECRET_NAME.search(name)) or is_credential(name)


def may_leave_as_text(name: str, value: str) -> bool:
    """Return whether plans and journals may show the value of the user's variable."""
    return not is_secret_name(name) and not _SECRET_VALUE.search(value)


def hide_secrets(name: str, value: str) -> str:
    """Return the variable's value without what looks like a secret in it."""
    return HIDDEN if is_secret_name(name) else _SECRET_VALUE.sub(HIDDEN, value)


class SecretsOfEnvironment:
    """The secret values of this process's environment, to be hidden in texts."""

    def __init__(self) -> None:
        values = [value for name, value in os.environ.items() if is_secret_name(name)]
        lines = {line.strip() for value in values for line in (value, *value.splitlines())}
        # Longer ones first: one may be a part of another. A short one is a word, such as `true`.
        self._values = sorted((line for line in lines if len(line) >= _SHORTEST), key=len)[::-1]

    def hide(self, text: str) -> str:
        """Return the text without these values, and without what looks like a secret."""
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return _SECRET_VALUE.sub(HIDDEN, text)
