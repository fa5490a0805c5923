"""The gRPC side: Pulumi's ResourceProvider for the table of types.

Source of the protocol: github.com/pulumi/pulumi, proto/pulumi/provider.proto at v3.258.0.
"""

import json
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

import boto3
import grpc
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from lab.fault_table import POLICY, PROVIDER, read
from lab.provider.difference import Difference, differences
from lab.provider.functions import NETWORK_INTERFACE, network_interface
from lab.provider.further_requests import send_after_delete, send_of_delete, send_of_read
from lab.provider.resource import (
    TIMES,
    Resource,
    Times,
    code_of,
    is_gone,
    limit_s,
    wait,
)
from lab.provider.retries import DEFAULT_ATTEMPTS, repeat_while_used, retry_handler
from lab.provider.table import TYPES
from lab.provider.values import UNKNOWN, Properties, from_struct, to_struct

VERSION = version("pulumi-aws")
"""The version of the package that the program uses; the Pulumi engine requests the same."""

DEFAULTS = "__defaults"
"""The input in which pulumi-terraform-bridge lists the defaults that it applied (pkg/tfbridge,
schema.go, 2026-11-22); it is no difference."""

_WORKERS = 64
"""Concurrent calls: as many as the Pulumi engine's default parallelism needs in a lab."""

_FAILURES = (ClientError, BotoCoreError, RuntimeError, TimeoutError)

_KINDS = {
    ("add", False): provider_pb2.PropertyDiff.ADD,
    ("add", True): provider_pb2.PropertyDiff.ADD_REPLACE,
    ("delete", False): provider_pb2.PropertyDiff.DELETE,
    ("delete", True): provider_pb2.PropertyDiff.DELETE_REPLACE,
    ("update", False): provider_pb2.PropertyDiff.UPDATE,
    ("update", True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
}


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """The `aws` provider for one endpoint; the region is that of the last configuration."""

    def __init__(self, endpoint: str, faults: Path | None = None, times: Times = TIMES) -> None:
        self._endpoint, self._times = endpoint, times
        self._faults = faults
        self._types: dict[str, Resource] = {}
        self._made: dict[tuple[Any, int], dict[str, Any]] = {}
        self._making = Lock()
        self._ec2: Any = None
        self._ignored_tags: frozenset[str] = frozenset()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        """Return the version that the SDK requests."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def Attach(self, request: Any, context: Any) -> Any:
        """Accept any Pulumi engine, without storing anything about it."""
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> Any:
        """Let running calls finish: this process also serves other Pulumi engines."""
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: Any) -> Any:
        """Accept the provider's inputs unchanged."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        """Report a new region as a replacement of the provider, hence of all resources."""
        moved = from_struct(request.olds).get("region") != from_struct(request.news).get("region")
        if not moved:
            return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME, diffs=["region"], replaces=["region"]
        )

    def Configure(self, request: Any, context: Any) -> Any:
        """Take the region's clients and types; accept secrets and resources as plain values."""
        arguments = from_struct(request.args)
        region = arguments.get("region")
        attempts = int(arguments.get("maxRetries") or DEFAULT_ATTEMPTS)
        clients = self._clients(None if region == UNKNOWN else region, attempts)
        self._ec2 = clients["ec2"]
        ignored = json.loads(arguments.get("ignoreTags") or "{}")
        self._ignored_tags = frozenset(ignored.get("keys", ()))
        self._types = {token: kind(clients[kind.service]) for token, kind in TYPES.items()}
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def _clients(self, region: Any, attempts: int) -> dict[str, Any]:
        """Return a client for each service; every operation of an engine asks for the same ones."""
        with self._making:
            clients = self._made.get((region, attempts))
            if clients is None:
                clients = self._made[region, attempts] = _clients(
                    self._endpoint, region, retry_handler(attempts, self._times.faster)
                )
            return clients

    def Invoke(self, request: Any, context: Any) -> Any:
        """Answer the one function that the program calls."""
        if request.tok != NETWORK_INTERFACE:
            failure = provider_pb2.CheckFailure(reason=f"the lab has no function {request.tok}")
            return provider_pb2.InvokeResponse(failures=[failure])
        try:
            interface = network_interface(self._ec2, from_struct(request.args))
        except _FAILURES as error:
            _fail(context, _text(error))
        return provider_pb2.InvokeResponse(**{"return": to_struct(interface)})

    def Check(self, request: Any, context: Any) -> Any:
        """Report unknown, missing and invalid inputs by name."""
        kind = self._type(request.urn, context)
        inputs = from_struct(request.news)
        known = kind.required | kind.replacing | kind.updating
        problems = {name: f"the lab's {kind.title} has no {name}" for name in set(inputs) - known}
        problems |= {name: "is required" for name in kind.required - set(inputs)}
        problems = problems or dict(kind.problems(inputs))
        checked = from_struct(request.news)
        if self._has_fault(PROVIDER):
            # The real bridge lists the defaults that it applied, not always the same ones.
            checked[DEFAULTS] = [secrets.token_hex(4)]
        return provider_pb2.CheckResponse(
            inputs=to_struct(checked),
            failures=[
                provider_pb2.CheckFailure(property=name, reason=reason)
                for name, reason in sorted(problems.items())
            ],
        )

    def Diff(self, request: Any, context: Any) -> Any:
        """Report every property that differs by its path, and whether it requires a replacement."""
        differing = self._differences(request, context)
        changes = provider_pb2.DiffResponse
        return provider_pb2.DiffResponse(
            changes=changes.DIFF_SOME if differing else changes.DIFF_NONE,
            diffs=sorted({d.property for d in differing}),
            replaces=sorted({d.property for d in differing if d.replace}),
            hasDetailedDiff=True,
            detailedDiff={
                d.path: provider_pb2.PropertyDiff(kind=_KINDS[d.kind, d.replace]) for d in differing
            },
        )

    def Create(self, request: Any, context: Any) -> Any:
        """Create the resource and wait until it is ready; in a preview return known values only."""
        kind = self._type(request.urn, context)
        inputs = from_struct(request.properties)
        if request.preview:
            unknown = dict.fromkeys(kind.computed, UNKNOWN)
            return provider_pb2.CreateResponse(properties=to_struct({**unknown, **inputs}))
        limit_s.set(request.timeout or self._times.wait_s)
        try:
            resource_id = kind.create(inputs)
        except _FAILURES as error:
            _fail(context, f"creating {kind.title}: {_text(error)}")
        try:
            wait(
                lambda: kind.is_known(resource_id, inputs),
                f"EC2 to know {kind.title} ({resource_id})",
                self._times.propagation_s,
            )
            kind.complete(resource_id, inputs)
            properties = self._read(kind, resource_id, inputs)
        except _FAILURES as error:
            reason = f"creating {kind.title} ({resource_id}): {_text(error)}"
            _fail_created(context, reason, resource_id, inputs)
        if properties is None:
            _fail(context, f"creating {kind.title} ({resource_id}): it is gone again")
        return provider_pb2.CreateResponse(id=resource_id, properties=to_struct(properties))

    def Read(self, request: Any, context: Any) -> Any:
        """Return the resource's actual properties; an empty id if it is gone."""
        kind = self._type(request.urn, context)
        try:
            properties = self._read(kind, request.id, from_struct(request.properties))
        except _FAILURES as error:
            _fail(context, f"reading {kind.title} ({request.id}): {_text(error)}")
        if properties is None:
            return provider_pb2.ReadResponse()
        inputs = from_struct(request.inputs)
        # The bridge takes what EC2 says of these for inputs (kind.read_inputs).
        read = {name: properties[name] for name in kind.read_inputs if properties.get(name)}
        return provider_pb2.ReadResponse(
            id=request.id, properties=to_struct(properties), inputs=to_struct({**read, **inputs})
        )

    def Update(self, request: Any, context: Any) -> Any:
        """Change the resource to its new inputs; in a preview return known values only."""
        kind = self._type(request.urn, context)
        state, inputs = from_struct(request.olds), from_struct(request.news)
        kept = _merge_inputs(state, from_struct(request.old_inputs), inputs)
        if request.preview:
            touched = {d.property for d in self._differences(request, context)}
            # A change of tags alone does not change the renewed outputs.
            renewed = kind.renewed if touched - {"tags"} else frozenset()
            unknown = dict.fromkeys(renewed, UNKNOWN)
            return provider_pb2.UpdateResponse(properties=to_struct({**kept, **unknown}))
        try:
            kind.update(request.id, state, inputs)
            properties = self._read(kind, request.id, kept)
        except _FAILURES as error:
            _fail(context, f"updating {kind.title} ({request.id}): {_text(error)}")
        if properties is None:
            _fail(context, f"updating {kind.title} ({request.id}): it is gone")
        return provider_pb2.UpdateResponse(properties=to_struct(properties))

    def Delete(self, request: Any, context: Any) -> Any:
        """Delete the resource; succeed if it is gone already."""
        kind = self._type(request.urn, context)
        limit_s.set(request.timeout or self._times.wait_s)
        state = from_struct(request.properties)
        try:
            if self._has_fault(POLICY):
                send_of_delete(kind, request.id)
            repeat_while_used(
                lambda: kind.delete(request.id, state), kind.in_use_s, self._times.faster
            )
            if self._has_fault(POLICY):
                send_after_delete(kind, request.id, state)
        except _FAILURES as error:
            if not (isinstance(error, ClientError) and is_gone(error)):
                _fail(context, f"deleting {kind.title} ({request.id}): {_text(error)}")
        return empty_pb2.Empty()

    def _read(self, kind: Resource, resource_id: str, state: Properties) -> Properties | None:
        """Return the resource's properties without the tags that the program ignores."""
        properties = kind.read(resource_id, state)
        if properties is not None and self._has_fault(POLICY):
            send_of_read(kind, resource_id, properties)
        if properties is None or not isinstance(properties.get("tags"), dict):
            return properties
        tags = {
            key: tag for key, tag in properties["tags"].items() if key not in self._ignored_tags
        }
        return {**properties, "tags": tags}

    def _has_fault(self, name: str) -> bool:
        return self._faults is not None and name in read(self._faults)

    def _type(self, urn: str, context: Any) -> Resource:
        # urn:pulumi:<stack>::<project>::<type>::<name>; a parent's type precedes a `$`.
        token = urn.split("::")[2].rpartition("$")[2]
        if token not in self._types:
            _fail(context, f"the lab has no resource type {token}")
        return self._types[token]

    def _differences(self, request: Any, context: Any) -> tuple[Difference, ...]:
        state, old, new = (
            {name: value for name, value in from_struct(given).items() if name != DEFAULTS}
            for given in (request.olds, request.old_inputs, request.news)
        )
        differing = differences(state, old, new, self._type(request.urn, context).replacing)
        ignored = {path.partition(".")[0].partition("[")[0] for path in request.ignoreChanges}
        return tuple(resource for resource in differing if resource.property not in ignored)


def serve(
    endpoint: str, port: int = 0, faults: Path | None = None, times: Times = TIMES
) -> tuple[grpc.Server, int]:
    """Serve the provider on the port of loopback, 0 for any free one; return server and port.

    `faults` is the lab's table of faults; without it the provider has none.

    The Pulumi engine connects to 127.0.0.1 without any authentication (sdk/go, provider_plugin.go
    and plugin.go at v3.258.0), so `lab.network.bridge` keeps other users from the port.
    """
    server = grpc.server(
        ThreadPoolExecutor(_WORKERS),
        # Launch templates with 32 interfaces for hundreds of nodes are far smaller than this.
        options=[("grpc.max_receive_message_length", 64 << 20)],
    )
    provider = Provider(endpoint, faults, times)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port


def _clients(endpoint: str, region: Any, retry: Callable[..., float | None]) -> dict[str, Any]:
    """Return a client for each service of the table of types, with the real provider's retries."""
    config = Config(
        max_pool_connections=_WORKERS,
        retries={"mode": "standard", "total_max_attempts": 1},  # retry_handler retries
    )
    clients: dict[str, Any] = {}
    for service in {kind.service for kind in TYPES.values()}:
        clients[service] = boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=endpoint,
            region_name=region,
            config=config,
        )
        clients[service].meta.events.register_first("needs-retry", retry)
    return clients


def _merge_inputs(state: Properties, old: Properties, inputs: Properties) -> Properties:
    """Return `state` with the new inputs, and without properties that are no longer inputs."""
    dropped = set(old) - set(inputs)
    return {**{name: value for name, value in state.items() if name not in dropped}, **inputs}


def _text(error: Exception) -> str:
    """Return the error in the real provider's words: AWS's operation, code and text."""
    if isinstance(error, ClientError):
        message = error.response.get("Error", {}).get("Message", "")
        return f"operation error EC2: {error.operation_name}, api error {code_of(error)}: {message}"
    return str(error)


def _fail(context: Any, message: str) -> NoReturn:
    context.abort(grpc.StatusCode.UNKNOWN, message)
    raise AssertionError("abort raises")


def _fail_created(context: Any, reason: str, resource_id: str, inputs: Properties) -> NoReturn:
    """Fail the call, but report that the resource exists, so that it can be deleted."""
    failure = provider_pb2.ErrorResourceInitFailed(
        id=resource_id, properties=to_struct(inputs), inputs=to_struct(inputs), reasons=[reason]
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=reason)
    status.details.add().Pack(failure)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    _fail(context, reason)
