"""The process for queries: an engine with a JVM of its own, which serves the service that started it.

It ends with its JVM, and with the service: when the service's end of the socket is closed, however that happens.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from service.engine.queries import wire
from service.engine.queries.serving import JobEngine, Serving
from service.engine.session.engine import Supervisor
from service.errors import FirnError
from service.host.logs import configure_logging

_KILLED_FIRST = "500"


@dataclass(frozen=True)
class Options:
    """What the process for queries is started with. `make` is a function of a module, or a partial of one."""

    make: Callable[[Supervisor], JobEngine]
    log_level: str


class Child:
    """The life of the process."""

    def __init__(self, control: socket.socket, news: Connection, options: Options) -> None:
        self._control, self._news = control, news
        self._lock = threading.Lock()
        self.engine = options.make(Supervisor(self._jvm_ended, self._stuck))
        self._serving = Serving(self.engine)

    def run(self) -> None:
        threading.Thread(target=self._accept, name="firn-accept", daemon=True).start()
        try:
            self.engine.start()
        except FirnError as e:
            self._report(wire.JobFailure.of(e))
            self._end()
        self._report(wire.Up())
        threading.Event().wait()

    def _accept(self) -> None:
        """Serve each connection that the service opens, until the service ends or closes its end."""
        while True:
            try:
                signs, fds, _, _ = socket.recv_fds(self._control, 1, 1)
            except OSError:
                signs, fds = b"", []
            if not signs:
                self._end()
            for fd in fds:
                threading.Thread(target=self._serving.serve, args=(Connection(fd),), daemon=True).start()

    def _jvm_ended(self, code: int) -> None:
        self._report(wire.Ended(code))
        self._end()

    def _stuck(self, tag: str) -> None:
        self._report(wire.Stuck(tag))
        self._end()

    def _report(self, news: Any) -> None:
        with self._lock, contextlib.suppress(OSError):
            wire.send(self._news, news)

    def _end(self) -> None:
        """End this process and its JVM, which is in the same group of processes."""
        with contextlib.suppress(Exception):
            self.engine.discard()
        os.killpg(0, signal.SIGKILL)


def main(control_fd: int, news_fd: int) -> None:
    control, news = socket.socket(fileno=control_fd), Connection(news_fd)
    for fd in (control_fd, news_fd):  # the JVM must not keep them open
        os.set_inheritable(fd, False)
    options: Options = wire.receive(news)
    configure_logging(options.log_level)
    # If the machine is short of memory, Linux kills this process and its JVM before the service's.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST)
    # The service decides when this process ends, also if the terminal signals both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Child(control, news, options).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
