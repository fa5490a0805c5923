"""Answers of AWS that the lab's API does not give, put in at botocore's own call."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from botocore.client import BaseClient


class ApiCall(NamedTuple):
    """A call of an API. `ask` sends it to the API of the test, and returns the answer."""

    operation: str
    request: Any
    region: str
    ask: Callable[[], Any]


Answer = Callable[[ApiCall], Any]


@pytest.fixture
def answer_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Have a function answer the calls of this process; the last function comes first."""

    def put_in(answer: Answer) -> None:
        call: Any = getattr(BaseClient, "_make_api_call")  # noqa: B009 its stubs do not know it

        def answered(self: Any, operation: str, request: Any) -> Any:
            def ask() -> Any:
                return call(self, operation, request)

            return answer(ApiCall(operation, request, self.meta.region_name, ask))

        monkeypatch.setattr(BaseClient, "_make_api_call", answered)

    return put_in
