"""Run requests in this process, without a service: metadata without Spark, or everything with it."""

import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from service.app import App
from service.cli.command import Request, Response, UsageError
from service.cli.connection.remote import Chunks, Notify, Unreachable, encode
from service.errors import FirnError
from service.host import jars, preflight
from service.jobs.jobs import Jobs
from service.model import wire
from service.model.call import Call
from service.model.identity.principal import LOCAL
from service.operations import envelope
from service.settings import Settings

_POLL_S = 0.1
_READY_TIMEOUT_S = 600


@dataclass(frozen=True)
class InProcess:
    """A connection to an application in this process."""

    app: App
    owned: bool = False
    """Whether closing the connection stops the application."""

    @classmethod
    def open(cls, settings: Settings, notify: Notify, *, needs_spark: bool) -> Self:
        """Start an application that owns the home; raises `HomeInUse` if another process owns it."""
        if not (settings.home / "catalog.db").exists() and settings.catalog.type == "sqlite":
            notify(f"FIRN_HOME {settings.home} has no data yet")
        if needs_spark:
            preflight.check_java(os.environ)
        found = jars.fetch(jars.LOCK, jars.cache_dir(os.environ), notify) if needs_spark else []
        app = App(settings.for_commands(), found)
        connection = cls(app, owned=True)
        try:
            if needs_spark:
                connection._start(notify)
            else:
                app.recover_previous()
                app.engine.stop()  # so that requests that need it are refused at once
        except BaseException:
            connection.close()
            raise
        return connection

    def send(self, request: Request, key: str | None = None, body: bytes | None = None) -> Response:
        call = Call(uuid.uuid4().hex, principal=LOCAL)
        response = self.app.pipeline.submit(body or encode(request), call, key)
        try:
            return dict(json.loads(response.result().body))
        except KeyboardInterrupt:
            call.cancel()
            raise

    def fetch(self, request: Request, media_type: str) -> bytes | Response:
        raise UsageError("only a service returns rows in this format; leave --no-background out")

    def upload(self, path: str, media_type: str, chunks: Chunks, key: str) -> Response:
        raise NotImplementedError("files are sent only to a service")

    def job(self, job_id: str) -> Response:
        return self._describe(self.app.parts[Jobs].describe, job_id)

    def cancel(self, job_id: str) -> Response:
        return self._describe(self.app.parts[Jobs].cancel, job_id)

    def close(self) -> None:
        if self.owned:
            self.app.stop()

    def _start(self, notify: Notify) -> None:
        notify("starting Spark in this process, which takes some seconds")
        self.app.start()
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self.app.ready:
            if time.monotonic() > deadline:
                raise Unreachable(f"Spark is not ready after {_READY_TIMEOUT_S} s")
            time.sleep(_POLL_S)

    def _describe(self, describe: Callable[[str], dict[str, Any]], job_id: str) -> Response:
        try:
            return {"success": True, "job": json.loads(wire.render(describe(job_id)))}
        except FirnError as e:
            return dict(json.loads(envelope.failure(e, "")))
