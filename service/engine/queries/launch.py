"""Starts a process for queries, opens connections to it, and ends it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection, wait
from typing import Any

from service.engine.queries import wire
from service.engine.queries.child import Options
from service.engine.queries.engine import Reason
from service.engine.queries.spark import OUT_OF_MEMORY
from service.errors import EngineUnavailable

_START_S = 180.0
_PING_EVERY_S = 2.0
# Longer than a full garbage collection of a large heap on a busy machine.
_HANG_S = 20.0
_SIGNALS = {-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM}


class QueryChild:
    """One process for queries. Its methods may be called from any thread."""

    def __init__(self, options: Options) -> None:
        self._control, control = socket.socketpair()
        self._news, news = _pair()
        self._reason: Reason | None = None
        self._lock = threading.Lock()
        fds = (control.fileno(), news.fileno())
        # By its module, in a session of its own: signals to the service's group do not reach it, and it can be killed
        # together with its JVM.
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "service.engine.queries.child", *map(str, fds)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            start_new_session=True,
        )
        control.close()
        news.close()
        # It has the passwords of databases, which a command line would show.
        with contextlib.suppress(OSError):
            wire.send(self._news, options)

    def connect(self) -> Connection:
        """A new connection. Raises OSError if the process has ended."""
        ours, theirs = _pair()
        with theirs:
            try:
                with self._lock:
                    socket.send_fds(self._control, [b"c"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def wait_until_up(self) -> None:
        """Raises EngineUnavailable if Spark does not start."""
        news: Any = None
        with contextlib.suppress(EOFError, OSError):
            news = wire.receive(self._news) if self._news.poll(_START_S) else None
        if isinstance(news, wire.Up):
            return
        self.kill("start")
        reason = news.message if isinstance(news, wire.JobFailure) else "its process ended"
        raise EngineUnavailable(f"Spark for queries did not start: {reason}")

    def wait_until_ended(self) -> Reason:
        """Watch the process until it has ended, with its JVM, and find out why. Kill it if it does not respond."""
        found: Reason | None = None
        try:
            with self.connect() as pings:
                while found is None:
                    found = self._news_within(_PING_EVERY_S) or self._hanging(pings)
        except (EOFError, OSError):
            # It may have said why before it ended.
            with contextlib.suppress(EOFError, OSError):
                found = self._news_within(0)
        self.kill(found or "killed")
        return self._reason or "killed"

    def _news_within(self, seconds: float) -> Reason | None:
        if not self._news.poll(seconds):
            return None
        return _reason_of(wire.receive(self._news))

    def _hanging(self, pings: Connection) -> Reason | None:
        wire.send(pings, wire.Ping())
        ready = wait([self._news, pings], _HANG_S)
        if pings in ready:
            wire.receive(pings)
        return None if ready else "hang"

    def kill(self, reason: Reason) -> None:
        """Kill the process with its JVM, if it has not ended, and wait for its end. The first reason counts."""
        with self._lock:
            self._reason = self._reason or reason
            # Not reaped yet, so its number is not another process's.
            if self._popen.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._popen.pid, signal.SIGKILL)
                self._popen.wait()
            self._control.close()

    def stop(self, seconds: float) -> None:
        """End the process; it removes its files if that takes no longer than this."""
        with self._lock:
            self._reason = self._reason or "stop"
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + seconds
        # Not by `wait`: as long as it is not reaped, its group can be killed safely.
        while time.monotonic() < deadline and not _has_ended(self._popen.pid):
            time.sleep(0.02)
        self.kill("stop")


def _has_ended(process: int) -> bool:
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # reaped
        return True


def _reason_of(news: Any) -> Reason:
    match news:
        case wire.Ended(code):
            return "memory" if code == OUT_OF_MEMORY else "killed" if code in _SIGNALS else "crash"
        case wire.Stuck():
            return "stuck"
    return "crash"


def _pair() -> tuple[Connection, Connection]:
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())
