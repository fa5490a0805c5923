"""The credentials of the user's AWS profile: found once, with errors that name the profile.

boto3 asks for them when a client is made, and for those of a role at the first request. Its own
errors then name neither the profile nor the file or variable that is wrong.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import botocore.session
from botocore.exceptions import (
    CredentialRetrievalError,
    InvalidConfigError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)

from config.command_text import command_text
from config.errors import CloudError
from config.folders import user_path

AWS_FILES: Mapping[str, str] = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
}
"""The variables that choose the user's AWS files, and where the files are without them."""

_PROFILE_VARIABLES = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE", "GPUCTL_AWS_PROFILE")
"""In botocore's order (`botocore.configprovider`), then gpuctl's own."""
_LIST = "`aws configure list-profiles` names those that exist"
_NO_CODE = "NoCredentials"
_ROLES = ("assume-role", "assume-role-with-web-identity")
"""botocore's names for the credentials of roles, which it asks for at the first request."""
_CONTAINER = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")


def load_credentials(session: botocore.session.Session) -> None:
    """Get the credentials of the session's profile; do nothing if it has none.

    Raises CloudError in one line if a program, a file or an MFA code stands in the way, and the
    errors of botocore.
    """
    try:
        _load(session)
    except EOFError as error:
        raise _no_code(session) from error
    except (SSOError, TokenRetrievalError) as error:
        name = _signed_in(session)
        raise CloudError(
            f"AWS sign-in: profile '{name}': {error}",
            f"renew it: {command_text('aws sso login --profile {}', name)}",
            "ExpiredToken",
        ) from error
    except CredentialRetrievalError as error:
        _explain(session, error)
        raise
    except PartialCredentialsError as error:
        raise _half(session, error) from error
    except InvalidConfigError as error:
        raise _unusable(session, str(error).rstrip(".")) from error
    except OSError as error:
        raise _unreadable(session, error) from error
    except (ValueError, TypeError, AttributeError) as error:  # its output is no object of JSON
        if _program(session):
            raise _program_failed(session, "prints no JSON object, as it must") from error
        if isinstance(error, ValueError):
            raise wrong_setting(error) from error
        raise


def _explain(session: botocore.session.Session, error: CredentialRetrievalError) -> None:
    """Raise the error about a container's address or a program; return for another source."""
    if error.kwargs.get("provider") == "container-role":
        raise _refused_address(error) from error
    if _program(session):
        said = str(error.kwargs.get("error_msg", "")).strip().splitlines()
        raise _program_failed(session, f"failed: {said[0]}" if said else "failed") from error


def _unreadable(session: botocore.session.Session, error: OSError) -> CloudError:
    """Return the error about a program or a file that the system refuses."""
    why = error.strerror or str(error)
    if _program(session) and error.filename:
        return _program_failed(session, f"cannot be run: {error.filename}: {why}")
    return _unusable(session, f"{error.filename or 'a file'} cannot be read: {why}")


def _half(session: botocore.session.Session, error: PartialCredentialsError) -> CloudError:
    """Return the error about one key without the other."""
    if error.kwargs.get("provider") != "env":
        return _unusable(session, str(error).rstrip("."))
    missing = str(error.kwargs.get("cred_var"))
    return CloudError(
        f"AWS_ACCESS_KEY_ID is set, and {missing} is not", "set both, or neither", _NO_CODE
    )


def _load(session: botocore.session.Session) -> None:
    """Get the credentials, also those of a role; errors are botocore's."""
    credentials = session.get_credentials()
    if credentials is not None and credentials.method in _ROLES:
        _check_terminal(session)
        credentials.get_frozen_credentials()


def wrong_setting(error: ValueError) -> CloudError:
    """Return the error about a setting of the user's that botocore cannot read.

    botocore has no class for some: a number that is none, a host that may give no credentials.
    """
    said = str(error).rstrip(".")
    wrong = {*re.findall("'(.+?)'", said), said.rpartition(": ")[2]}
    named = [
        name
        for name, value in os.environ.items()
        if name.startswith("AWS_") and wrong & {value, *re.split("[:/]+", value)}
    ]
    if said.startswith("Unsupported host"):
        named = [_CONTAINER[0]]
    where = " and ".join(named) or "the AWS_ variable, or the line of the AWS files, that has it"
    return CloudError(f"a setting for AWS is wrong: {said}", f"correct {where}", _NO_CODE)


def wrong_variables(text: str) -> list[str]:
    """Return the variables for AWS whose value botocore's text has, except names of places."""
    words = set(re.split(r"[\s,;'\"]+|[.:](?:\s|$)", text))
    places = ("AWS_REGION", "AWS_DEFAULT_REGION", *_PROFILE_VARIABLES)
    return [
        name
        for name, value in os.environ.items()
        if name.startswith("AWS_") and name not in places and value and value in words
    ]


def unparsed_file(path: str) -> CloudError:
    """Return the error about a file of AWS's settings that is not in their format."""
    named = [variable for variable, file in _files() if os.environ.get(variable) == path]
    by = f", which {named[0]} names," if named else ""
    return CloudError(
        f"{path}{by} is not in the format of AWS's settings",
        "correct it: `[profile NAME]` and `name = value`, each on one line and each name once",
        _NO_CODE,
    )


def _refused_address(error: CredentialRetrievalError) -> CloudError:
    named = next((name for name in _CONTAINER if os.environ.get(name)), _CONTAINER[0])
    said = str(error.kwargs.get("error_msg", error))
    for words in ("Error retrieving metadata: ", "Received error when attempting to retrieve "):
        said = said.removeprefix(words).removeprefix("container metadata: ")
    return CloudError(
        f"the address in {named} gives no credentials: {said}",
        f"correct or unset {named}; outside of a container nothing needs it",
        _NO_CODE,
    )


def unknown_profile(name: str) -> CloudError:
    """Return the error about a profile that no file has; it names what chooses the profile."""
    chosen = [variable for variable in _PROFILE_VARIABLES if os.environ.get(variable) == name]
    if not name and chosen:
        return CloudError(
            f"{chosen[0]} is set and empty, and boto3 takes that as a profile's name",
            f"unset {chosen[0]}, or set it to a profile: {_LIST}",
            _NO_CODE,
        )
    by = f", which {chosen[0]} names," if chosen else ""
    places = " nor ".join(str(path) for _, path in _files())
    change = f"change {chosen[0]}" if chosen else "name another one"
    return CloudError(
        f"profile '{name}'{by} is neither in {places}", f"{change}: {_LIST}", _NO_CODE
    )


def unusable_files() -> Iterator[str]:
    """Yield what is wrong with the user's AWS files: boto3 passes over them without a word."""
    for variable, path in _files():
        try:
            with user_path(path).open("rb"):
                pass
        except FileNotFoundError:
            if os.environ.get(variable):
                yield f"{path}, which {variable} names, does not exist"
        except OSError as error:
            yield f"{path} cannot be read: {error.strerror}"


def _files() -> list[tuple[str, Path]]:
    return [(name, Path(os.environ.get(name) or place)) for name, place in AWS_FILES.items()]


def _check_terminal(session: botocore.session.Session) -> None:
    """Raise CloudError if the profile needs an MFA code that nobody can be asked for.

    boto3 would print two lines, and read the code from a pipe.
    """
    if "mfa_serial" not in session.get_scoped_config():
        return
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        if not sys.stdin.isatty():
            raise _no_code(session) from error


def _name(session: botocore.session.Session) -> str:
    return str(session.get_config_variable("profile") or "default")


def _signed_in(session: botocore.session.Session) -> str:
    """Return the profile that `aws sso login` is for: that of the role's source."""
    settings = session.get_scoped_config()
    has_own = any(name.startswith("sso_") for name in settings)
    return _name(session) if has_own else str(settings.get("source_profile", _name(session)))


def _program(session: botocore.session.Session) -> str:
    """Return the first word of the profile's `credential_process`: others may be secrets."""
    command = str(session.get_scoped_config().get("credential_process", ""))
    return (command.split() or [""])[0]


def _config_file() -> str:
    return str(_files()[0][1])


def _program_failed(session: botocore.session.Session, what: str) -> CloudError:
    name = _name(session)
    return CloudError(
        f"the credential_process of profile '{name}' ({_program(session)}) {what}",
        f"correct it in {_config_file()};"
        f" {command_text('aws sts get-caller-identity --profile {}', name)} tries it",
        _NO_CODE,
    )


def _unusable(session: botocore.session.Session, what: str) -> CloudError:
    return CloudError(
        f"the credentials of profile '{_name(session)}': {what}",
        "correct the profile, or the variable that names the file",
        _NO_CODE,
    )


def _no_code(session: botocore.session.Session) -> CloudError:
    name = _name(session)
    serial = session.get_scoped_config().get("mfa_serial", "its device")
    return CloudError(
        f"profile '{name}' needs an MFA code of {serial}, and there is no terminal to ask on",
        "run gpuctl on a terminal, or give it credentials that have one:"
        f' eval "$(aws configure export-credentials --profile {name} --format env)"',
        _NO_CODE,
    )
