"""The HTTP side of an App that is not started: requests without Spark are served, the others are refused."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from service.api import http
from service.app import App
from tests.harness import Firn, free_port, wait_until


@contextmanager
def served(app: App) -> Iterator[Firn]:
    """A client of the application, which is neither started nor stopped."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(http.create(app), host="127.0.0.1", port=port, log_level="warning"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # not on this thread
    thread = threading.Thread(target=server.run, daemon=True)
    firn = Firn(f"http://127.0.0.1:{port}", app, app.settings.home)
    thread.start()
    try:
        wait_until(lambda: server.started, 30, every=0.01)
        yield firn
    finally:
        firn.client.close()
        server.should_exit = True
        thread.join(10)
