"""The problems that the checks of one cluster file find, gathered so that all are reported."""

from collections.abc import Callable
from typing import TypeVar

from config.errors import CloudError, GpuctlError, InputError
from provision.aws.clients import DENIED, UNIVERSAL

T = TypeVar("T")


class Problems:
    """The problems and warnings so far, in the order of the cluster file's fields."""

    def __init__(self) -> None:
        self.errors: list[GpuctlError] = []
        self.warnings: list[str] = []

    def catch(self, ask: Callable[[], T]) -> T | None:
        """Return the result of `ask`, or note its error and return None.

        Of the account-wide errors (UNIVERSAL) only the first is noted: STS, EC2 and SSM refuse the
        same wrong keys with different codes.
        """
        try:
            return ask()
        except GpuctlError as error:
            code = error.code if isinstance(error, CloudError) else ""
            codes = {known.code for known in self.errors if isinstance(known, CloudError)}
            if code not in UNIVERSAL or not UNIVERSAL & codes:
                self.errors.append(error)
            return None

    def advise(self, what: str, action: str, ask: Callable[[], T]) -> T | None:
        """Return the result of `ask`, or None; an error of AWS is a warning, any other a problem.

        The warning says that `what` was not checked, and names `action`, the IAM permissions that
        the request needs, if AWS denied it.
        """
        try:
            return ask()
        except CloudError as error:
            why = f"{error.code}: allow {action}" if error.code in DENIED else error.message
            self.warnings.append(f"{what} could not be checked ({why})")
        except GpuctlError as error:
            self.errors.append(error)
        return None

    def check(self) -> None:
        """Raise the one problem as it is, or several as one error with a line each."""
        if not self.errors:
            return
        if len(self.errors) == 1:
            raise self.errors[0]
        kind = InputError if all(isinstance(e, InputError) for e in self.errors) else CloudError
        raise kind("\n".join(str(error) for error in self.errors), "")
