"""The HTTP server of the lab's API.

moto has one set of backends per process, so a process can run one ApiServer at a time. A new one
starts with empty regions. For tests and trials without machines:

    with ApiServer(AccessKey("lab", "secret")) as api:
        boto3.client("ec2", endpoint_url=api.url, region_name="us-east-1", aws_access_key_id="lab",
                     aws_secret_access_key="secret")

or, as a separate process, `python -m lab.api --port 5000`. Every request must be signed with the
server's key (`lab.api.signature`).
"""

import json
from collections.abc import Callable, Iterable
from importlib import import_module
from ipaddress import IPv4Network
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, Self

from flask import Flask
from moto.core.base_backend import BackendDict
from moto.ec2 import urls as ec2_urls
from moto.ec2.models import ec2_backends
from moto.efs.models import efs_backends
from moto.fsx.models import fsx_backends
from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.ssm.models import ssm_backends

from config.errors import LabError
from lab.access_key import AccessKey
from lab.api import buckets, pricing, quotas, signature
from lab.api.ami_parameters import SsmBackend
from lab.api.authorization import Authorization
from lab.api.backend import LabBackend
from lab.api.error_answers import ErrorAnswer, error_answer
from lab.api.faults import Faults
from lab.api.file_systems import EfsBackend, FsxBackend
from lab.api.lustre_repository import packages
from lab.api.machines import Machines, NoMachines
from lab.api.metadata import Metadata
from lab.api.region import PROFILE_DELAY_S, CapacityTable, Lab, PublicAddresses
from lab.api.responses import LabResponse
from lab.api.roles import key_of, session_of
from lab.api.sessions import IamBackend
from lab.api.spot import Interruptions
from lab.api.worker_threads import WorkerServer
from lab.network.slots import Slot
from lab.requests.recorder import Recorder
from lab.requests.refusals import refusal
from lab.requests.wire import parse

for _module in ("iam.access_control", "s3.urls", "sts.urls"):
    # moto would import them at the first requests. Two of those at once, in threads, may wait for
    # each other's modules: Python reports a deadlock, and the request fails.
    import_module(f"moto.{_module}")

SERVICES = ("ec2", "ssm", "sts", "iam", "elasticfilesystem", "fsx", buckets.SERVICE)
"""The services that moto and the lab answer together."""

OWN_SERVICES = ("servicequotas", "pricing")
"""The services that the lab alone answers."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application."""

_LOOPBACK = "127.0.0.1"
"""Machines cannot reach the API: in the lab no instance has credentials for it."""

SHUTDOWN_POLL_SECONDS = 0.1
"""The interval at which the server checks whether to end; it polls for nothing else."""


class _Services(DomainDispatcherApplication):  # type: ignore[misc]  # moto is untyped here
    """moto's application, limited to the services of the lab.

    It refuses requests that `key` did not sign, including moto's own paths (`/moto-api/`).
    """

    def __init__(self, key: AccessKey, faults: Faults) -> None:
        super().__init__(create_backend_app)
        self._key = key
        self._faults = faults
        self._authorization = Authorization(faults)
        self.recorder: Recorder | None = None
        self._applications: dict[str, Flask] = {}

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if (body := packages(environ, self._faults)) is not None:
            start_response("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        session = session_of(environ)
        refused = signature.refusal(environ, key_of(session) if session else self._key)
        refused = refused or signature.expiry(environ, self._faults.credentials_end())
        if refused := refused or self._rule_refusal(environ):
            start_response(refused.status, refused.headers)
            return [refused.body]
        service, region = _scope(environ)
        if service == buckets.SERVICE:
            with buckets.ONE_AT_A_TIME:
                return list(super().__call__(environ, start_response))
        if service in SERVICES:
            answer: Iterable[bytes] = super().__call__(environ, start_response)
            return answer
        status, fields = "400 Bad Request", self._answer(service, region, environ)
        if "__type" not in fields:
            status = "200 OK"
        body = json.dumps(fields).encode()
        headers = [
            ("Content-Type", "application/x-amz-json-1.1"),
            ("Content-Length", str(len(body))),
        ]
        start_response(status, headers)
        return [body]

    def get_application(self, environ: dict[str, Any]) -> Flask:
        """Return moto's application for the request's service.

        moto lists its own folder and matches a hundred patterns to find it, at every request.
        """
        service, _ = _scope(environ)
        kept = environ.get("PATH_INFO") == "/" and service != buckets.SERVICE
        if kept and service in self._applications:
            return self._applications[service]
        application: Flask = super().get_application(environ)
        if kept:
            self._applications[service] = application
        return application

    def _rule_refusal(self, environ: dict[str, Any]) -> ErrorAnswer | None:
        """Return AWS's response to a request that breaks a rule or is not allowed, else None.

        Also the answers that moto does not have.
        """
        service, region = _scope(environ)
        if service == buckets.SERVICE:
            return self._authorization.decision([buckets.check(environ)], environ, service)
        is_known = service in SERVICES + OWN_SERVICES
        request = parse(service, environ, environ["wsgi.input"].getvalue()) if is_known else None
        if request is None:
            return None
        if refused := refusal(request):
            return error_answer(service, refused.code, refused.text, "400 Bad Request")
        if denied := self._authorization.refusal(request, environ, service, region):
            return denied
        if self.recorder:
            self.recorder.write(request, region)
        if body := self._authorization.simulation(request):
            return ErrorAnswer("200 OK", "text/xml", body, "")
        return None

    def _answer(self, service: str, region: str, environ: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a service in AWS's JSON protocol; an error has `__type`."""
        action = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        lacks = _error(
            "UnknownOperationException", f"the lab has no service {service or 'of that name'}"
        )
        if service not in OWN_SERVICES:
            return lacks
        length = int(environ.get("CONTENT_LENGTH") or 0)
        request = json.loads(environ["wsgi.input"].read(length) or b"{}")
        try:
            if service == "pricing":
                return pricing.answer(action, request)
            return quotas.answer(action, request, self._faults, region)
        except quotas.NotFound:
            return _error("NoSuchResourceException", "The specified quota does not exist.")
        except KeyError:
            return _error("UnknownOperationException", f"the lab's {service} has no {action}")


def _error(code: str, message: str) -> dict[str, Any]:
    return {"__type": code, "message": message}


def _scope(environ: dict[str, Any]) -> tuple[str, str]:
    """Return the service and the region that the request is signed for."""
    _, _, credential = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")
    scope = credential.split(",")[0].split("/")
    return (scope[3], scope[2]) if len(scope) == 5 else ("", "")


class _QuietHandler(MotoRequestHandler):  # type: ignore[misc]  # moto is untyped here
    """A request handler without a log: a client that polls would fill it.

    It sends headers and body in one write.
    """

    wbufsize = -1  # buffered; werkzeug flushes

    def log_request(self, *_: Any) -> None:
        """Log nothing."""


class ApiServer:
    """The API on one port of loopback, until closed.

    It answers only requests that `key` signed. With `machines` None, instances have no machines
    (for tests of the API alone). `capacity` is the file of `lab.api.region.CapacityTable`,
    `faults` that of `lab.fault_kinds`. Public addresses come from `public_range`. EC2
    refuses an instance profile for the first `profile_delay_s`.
    """

    def __init__(
        self,
        key: AccessKey,
        machines: Machines | None = None,
        capacity: Path | None = None,
        port: int = 0,
        *,
        faults: Path | None = None,
        public_range: IPv4Network = Slot(0).public_range,  # noqa: B008  (a constant)
        profile_delay_s: float = PROFILE_DELAY_S,
    ) -> None:
        injected = Faults(faults)
        _new_world(
            Lab(
                machines=machines or NoMachines(),
                capacity=CapacityTable(capacity, injected),
                faults=injected,
                addresses=PublicAddresses(public_range),
                profile_delay_s=profile_delay_s,
            )
        )
        self.metadata = Metadata(_instances)
        self._services = _Services(key, injected)
        try:
            self._server = WorkerServer(_LOOPBACK, port, self._services, _QuietHandler)
        except (OSError, SystemExit) as error:
            raise LabError(
                f"the lab's API cannot listen on {_LOOPBACK}:{port}: {error}",
                "end what listens there, or take another port",
            ) from None
        self.port = int(self._server.server_address[1])
        self.url = f"http://{_LOOPBACK}:{self.port}"
        Thread(
            target=self._server.serve_forever,
            args=(SHUTDOWN_POLL_SECONDS,),
            name="api",
            daemon=True,
        ).start()
        self._interruptions = Interruptions(_regions)

    def record_requests(self, folder: Path) -> None:
        """Record requests that break no rule in the folder, as long as it exists."""
        self._services.recorder = Recorder(folder)

    def surround(self, make: Callable[[Application], Application]) -> None:
        """Let the application that `make` returns answer in place of the one that it gets."""
        self._server.app = make(self._server.app)

    def close(self) -> None:
        """Stop the server."""
        self._interruptions.close()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _regions() -> list[LabBackend]:
    """Return the regions that have received a request."""
    return [region for account in list(ec2_backends.values()) for region in list(account.values())]


def _instances() -> list[Any]:
    """Return the instances of all regions that are not terminated."""
    instances: list[Any] = []
    for region in _regions():
        with region.lab.lock:
            instances += [instance for instance in region.all_instances() if instance.nics]
    return instances


def _new_world(lab: Lab) -> None:
    class Backend(LabBackend):
        """The backend of this server's regions."""

        _url_module = SimpleNamespace(
            url_bases=ec2_urls.url_bases, url_paths={"{0}/": LabResponse.dispatch}
        )

    Backend.lab = lab
    ec2_backends.backend = Backend
    ssm_backends.backend = SsmBackend
    iam_backends.backend = IamBackend
    efs_backends.backend = EfsBackend
    fsx_backends.backend = FsxBackend
    # Last: a request of an earlier world that still runs makes regions of this one.
    BackendDict.reset()
