"""The application in this process, as a door: for metadata without Spark, and for all where it is to be so."""

import json
import os
import time
from collections.abc import Callable
from typing import Any, Self

from service import envelope, jars, wire
from service.app import App
from service.cli.command import Answer, Request
from service.cli.remote import Unreachable, text_of
from service.errors import FirnError
from service.settings import Settings

_LOOK_EVERY_S = 0.1
_READY_S = 600
Say = Callable[[str], None]


class InProcess:
    """A router of our own. Whoever opened it here closes it; one that was there already stays."""

    def __init__(self, app: App, *, ours: bool = False) -> None:
        self._app = app
        self._ours = ours

    @classmethod
    def open(cls, settings: Settings, say: Say, *, spark: bool) -> Self:
        """Own the home for one command; HomeInUse where somebody else does."""
        if not (settings.home / "catalog.db").exists() and settings.catalog.type == "sqlite":
            say(f"FIRN_HOME {settings.home} has no data yet")
        found = jars.fetch(jars.LOCK, jars.cache_dir(os.environ), say) if spark else []
        app = App(settings.for_commands(), found)
        made = cls(app, ours=True)
        try:
            if spark:
                made._start(say)
            else:
                app.look_back()
                app.engine.stop()  # what needs it all the same is told so at once
        except BaseException:
            made.close()
            raise
        return made

    def ask(self, request: Request | bytes, key: str | None = None) -> Answer:
        answer = self._app.router.submit(text_of(request), key=key).result()
        return _read(answer.body)

    def job(self, job_id: str) -> Answer:
        return self._told(self._app.context.jobs.describe, job_id)

    def cancel(self, job_id: str) -> Answer:
        return self._told(self._app.context.jobs.cancel, job_id)

    def close(self) -> None:
        if self._ours:
            self._app.stop()

    def _start(self, say: Say) -> None:
        say("starting Spark in this process, which takes some seconds")
        self._app.start()
        until = time.monotonic() + _READY_S
        while not self._app.ready:
            if time.monotonic() > until:
                raise Unreachable(f"Spark is not ready after {_READY_S} s")
            time.sleep(_LOOK_EVERY_S)

    def _told(self, ask: Callable[[str], dict[str, Any]], job_id: str) -> Answer:
        try:
            return {"success": True, "job": json.loads(wire.render(ask(job_id)))}
        except FirnError as e:
            return _read(envelope.failure(e, ""))


def _read(body: bytes) -> Answer:
    answer: Answer = json.loads(body)
    return answer
