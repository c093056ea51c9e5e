"""Ctrl-C ends the connection of a request at once, so that the service can cancel the work."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.host import presence
from service.settings import ROOT, load


class Silent:
    """A service that takes one request, never responds, and sees when the connection ends."""

    def __init__(self, listening: socket.socket) -> None:
        self.listening = listening
        self.received, self.ended = threading.Event(), threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self.received.is_set():
            connection, _ = self.listening.accept()
            with connection:
                # Who only looks whether anybody listens sends nothing.
                if connection.recv(65536):
                    self.received.set()
                    while connection.recv(65536):
                        pass
                    self.ended.set()


@pytest.fixture(params=["url", "home"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Silent, dict[str, str]]]:
    """The service, and the variables with which a command finds it."""
    if request.param == "url":
        listening = socket.create_server(("127.0.0.1", 0))
        variables = {"FIRN_URL": f"http://127.0.0.1:{listening.getsockname()[1]}"}
    else:
        variables = {"FIRN_HOME": str(tmp_path)}
        listening = presence.announce(load(variables), background=True)
    with listening:
        yield Silent(listening), variables


def test_ctrl_c_during_a_request_ends_its_connection_at_once(service: tuple[Silent, dict[str, str]]) -> None:
    silent, variables = service
    process = subprocess.Popen(
        [sys.executable, "-m", "service", "query", "t"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert silent.received.wait(60), process.communicate(timeout=5)
        assert not silent.ended.wait(0.2)
        process.send_signal(signal.SIGINT)
        assert silent.ended.wait(60), "nothing but Ctrl-C ends the request: the service never responds"
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "")
