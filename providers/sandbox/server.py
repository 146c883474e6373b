"""The cloud's one port: AWS protocols, metadata and control, on the loopback only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)

from providers.sandbox import ec2_wire as wire
from providers.sandbox import pricing_api
from providers.sandbox.cloud_core import CloudCore
from providers.sandbox.config import FaultRule
from providers.sandbox.control_api import PREFIX, ControlApi
from providers.sandbox.ec2_gate import Ec2Gate, suffer
from providers.sandbox.http_server import QuietHandler, hang_up
from providers.sandbox.metadata import MetadataService
from providers.sandbox.wsgi import (
    MAX_BODY_BYTES,
    BodyTooLarge,
    Environ,
    Reply,
    StartResponse,
    WsgiApp,
    call_buffered,
    read_body,
)


class Doors:
    """Sends every call to its door; AWS calls pass the scripted faults first."""

    def __init__(
        self,
        core: CloudCore,
        control: ControlApi,
    ) -> None:
        self._core = core
        self._control = control
        self._moto: WsgiApp = DomainDispatcherApplication(create_backend_app)
        self._metadata = MetadataService(core)
        self._ec2 = Ec2Gate(core, self._moto, control.console)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith(PREFIX):
            return self._control.handle(environ).send(start_response)
        if path.startswith("/imds/"):
            return self._metadata.handle(environ).send(start_response)
        if path.startswith("/moto-api"):
            # it would reset the cloud behind the back of its own books
            return Reply(404, "text/plain", b"not found").send(start_response)
        # every cloud has an account of its own, whatever key its callers sign with
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = self._core.account_id
        region, service = wire.signed_scope(environ)
        try:
            return self._aws(environ, start_response, region, service)
        except BodyTooLarge:
            return wire.error_reply(
                service, "RequestEntityTooLarge", f"at most {MAX_BODY_BYTES} bytes", 413
            ).send(start_response)

    def _aws(
        self, environ: Environ, start_response: StartResponse, region: str, service: str
    ) -> Iterable[bytes]:
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        if target:
            body = read_body(environ)
            rule = self._misfortune(target, {})
            reply = suffer(rule, service, lambda: self._json(environ, target, body))
            if rule is not None and rule.code is not None:
                reply = pricing_api.error(rule.code, rule.message, rule.http_status)
        elif wire.is_query(environ):
            parameters = wire.read_form(read_body(environ))
            action = parameters.get("Action", "")
            rewritten = wire.rewrite(environ, parameters)
            known = (
                self._ec2.launch_parameters(parameters)
                if service == "ec2" and action == "RunInstances"
                else {}
            )
            request = wire.AwsRequest(service, region, action, parameters)
            rule = self._misfortune(action, {**known, **parameters})
            perform = (
                partial(self._ec2.handle, rewritten, request)
                if service == "ec2"
                else partial(self._pass, rewritten)
            )
            reply = suffer(rule, service, perform)
        else:
            rule = self._misfortune(f"{service or 's3'}:{environ['REQUEST_METHOD']}", {})
            if rule is None:
                # object bodies may be large: they stream
                return self._moto(environ, start_response)
            reply = suffer(rule, service or "s3", lambda: self._pass(environ))
        if reply is None:
            hang_up(environ)
            return Reply(500, "text/plain", b"").send(start_response)
        return reply.send(start_response)

    def _misfortune(self, action: str, parameters: Mapping[str, str]) -> FaultRule | None:
        with self._core.lock:
            self._core.calls[action] += 1
        return self._core.faults.strike(action, parameters)

    def _json(self, environ: Environ, target: str, body: bytes) -> Reply:
        own = pricing_api.answer(self._core, target, body)
        return self._pass(wire.with_body(environ, body)) if own is None else own

    def _pass(self, environ: Environ) -> Reply:
        status, headers, body = call_buffered(self._moto, environ)
        kind = next((v for k, v in headers if k.lower() == "content-type"), "text/xml")
        return Reply(int(status.split(" ", 1)[0]), kind, body)


class AwsHandler(MotoRequestHandler, QuietHandler):
    """moto's: S3 metadata keys keep their underscores."""
