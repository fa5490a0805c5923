"""The retries of the real AWS provider, in compressed time.

Sources: `resolveRetryer` in hashicorp/aws-sdk-go-base's aws_config.go (`max_retries` is the number
of attempts of aws-sdk-go-v2's standard retryer, without its token bucket), and
internal/service/ec2/service_package.go in hashicorp/terraform-provider-aws, which adds
InsufficientInstanceCapacity to what is retried. The pauses are random, at most 1, 2, 4 … seconds
and 300 s: about 50 minutes for the default of 25 attempts
(https://github.com/hashicorp/terraform-provider-aws/issues/43193). All read on 2026-11-22.
"""

import random
import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from config.catalogue.aws_codes import aws_code
from lab.provider.resource import code_of

DEFAULT_ATTEMPTS = 25
"""The provider's default of `max_retries`."""

LONGEST_S = 300.0

_PAUSE_S = 0.1

IN_USE = frozenset({"DependencyViolation", "InvalidGroup.InUse"})
"""The codes after which the real provider repeats the removal of a VPC, subnet, security group or
internet gateway, for `Resource.in_use_s` (hashicorp/terraform-provider-aws, internal/service/ec2:
vpc_.go, vpc_subnet.go, vpc_security_group.go, vpc_internet_gateway.go, 2026-11-23)."""

_STATUSES = frozenset({500, 502, 503, 504})


def retry_handler(most_attempts: int, faster: float) -> Callable[..., float | None]:
    """Return a handler of botocore's `needs-retry` for at most so many tries of a request.

    Its pauses are `faster` times shorter than the real provider's.
    """

    def pause(*, attempts: int, response: Any, caught_exception: Any, **_: Any) -> float | None:
        if attempts >= most_attempts or not (caught_exception or _is_retried(response)):
            return None
        most = min(2.0 ** (attempts - 1), LONGEST_S)
        return random.uniform(0, most) / faster  # noqa: S311  (no secret)

    return pause


def repeat_while_used(delete: Callable[[], None], seconds: float, faster: float) -> None:
    """Call `delete` until no other resource uses its target, for so many of AWS's seconds."""
    end = time.monotonic() + seconds / faster
    while True:
        try:
            return delete()
        except ClientError as error:
            if code_of(error) not in IN_USE or time.monotonic() > end:
                raise
            time.sleep(_PAUSE_S)


def _is_retried(response: tuple[Any, Any] | None) -> bool:
    if response is None:
        return False
    http, parsed = response
    code = parsed.get("Error", {}).get("Code", "")
    known = aws_code(code)
    throttled = known is not None and known.repeat == "same"
    return http.status_code in _STATUSES or throttled or code == "InsufficientInstanceCapacity"
