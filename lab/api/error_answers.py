"""Error responses in the wire form of each service, for requests that no backend receives."""

import json
from dataclasses import dataclass
from xml.sax.saxutils import escape


@dataclass(frozen=True)
class ErrorAnswer:
    """An HTTP response with an error of AWS."""

    status: str
    content_type: str
    body: bytes
    code: str

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The response's headers; REST-JSON services put the code there."""
        return [
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            ("x-amzn-ErrorType", self.code),
        ]


def error_answer(service: str, code: str, text: str, status: str) -> ErrorAnswer:
    """Return the error as the service sends it; `service` is what requests are signed for."""
    error = f"<Code>{escape(code)}</Code><Message>{escape(text)}</Message>"
    if service == "ec2":
        body = f"<Errors><Error>{error}</Error></Errors><RequestID>lab</RequestID>"
        return ErrorAnswer(status, "text/xml", f"<Response>{body}</Response>".encode(), code)
    if service in ("sts", "iam"):
        body = f"<Error><Type>Sender</Type>{error}</Error><RequestId>lab</RequestId>"
        whole = f"<ErrorResponse>{body}</ErrorResponse>"
        return ErrorAnswer(status, "text/xml", whole.encode(), code)
    if service == "s3":
        return ErrorAnswer(status, "application/xml", f"<Error>{error}</Error>".encode(), code)
    document = json.dumps({"__type": code, "message": text})
    return ErrorAnswer(status, "application/x-amz-json-1.1", document.encode(), code)
