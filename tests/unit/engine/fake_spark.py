"""An engine for the process for queries without a JVM, and jobs for it. Both are imported in that process."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from service.engine.queries.batches import RowBatches
from service.engine.queries.child import Options
from service.engine.session.engine import Supervisor
from service.errors import EngineUnavailable, InvalidQuery
from service.model.call import Call


class FakeSpark:
    """Its JVM is a shell that ends with the code that it reads."""

    def __init__(self, supervisor: Supervisor, starts: bool) -> None:
        self._supervisor, self._starts = supervisor, starts
        self.cancelled: list[str] = []

    def start(self) -> None:
        if not self._starts:
            raise EngineUnavailable("no Java here")
        self._jvm = subprocess.Popen(["sh", "-c", "read code; exit $code"], stdin=subprocess.PIPE)
        threading.Thread(target=lambda: self._supervisor.ended(self._jvm.wait()), daemon=True).start()

    def run_for(self, call: Call, job: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return job(Session(self, call), *args, **kwargs)

    def end_jvm(self, code: int) -> None:
        assert self._jvm.stdin is not None
        self._jvm.stdin.write(b"%d\n" % code)
        self._jvm.stdin.flush()
        threading.Event().wait()

    @property
    def jvm(self) -> int:
        return self._jvm.pid

    def cancel_stubborn(self, tag: str) -> None:
        self.cancelled.append(tag)

    def rows_read(self, tag: str) -> int:
        return 7

    def warm(self, table: str) -> None: ...

    def answers(self) -> bool:
        return True

    def discard(self) -> None:
        self._jvm.kill()


class Session:
    """What its jobs get."""

    def __init__(self, engine: FakeSpark, call: Call) -> None:
        self.engine, self.call = engine, call


def fake_options(*, starts: bool = True) -> Options:
    return Options(partial(_made, starts), "critical")


def _made(starts: bool, supervisor: Supervisor) -> FakeSpark:
    return FakeSpark(supervisor, starts)


def returned(session: Session, value: Any) -> Any:
    return value


def asked(session: Session, *functions: Callable[[], Any]) -> list[Any]:
    return [function() for function in functions]


def refused(session: Session) -> None:
    raise InvalidQuery("no such column", field="sql", suggestion="id", details={"line": 3})


def slipped(session: Session) -> None:
    raise AttributeError("a slip")


def processes(session: Session) -> tuple[int, int]:
    """Of the process and of its JVM."""
    return os.getpid(), session.engine.jvm


def jvm_ends(session: Session, code: int, begun: Callable[[], Any]) -> None:
    begun()
    session.engine.end_jvm(code)


def killed(session: Session, begun: Callable[[], Any], *, jvm: bool) -> str:
    """Kill the process or its JVM the first time that it runs."""
    if begun() == 1:
        os.kill(session.engine.jvm if jvm else os.getpid(), signal.SIGKILL)
        threading.Event().wait()
    return "done"


def until_cancelled(session: Session, begun: Callable[[], Any]) -> None:
    over = threading.Event()
    session.call.on_cancel(over.set)
    begun()
    over.wait()
    session.call.check()


def stubborn(session: Session, begun: Callable[[], Any]) -> None:
    begun()
    time.sleep(600)


class Numbers(RowBatches):
    """Batches of one number each; the JVM ends with a code before one of them."""

    scans = ()
    schema = pa.schema({"n": pa.int64()})

    def __init__(self, session: Session, count: int, ends_before: int | None) -> None:
        self._session, self._count, self._ends_before = session, count, ends_before

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for n in range(self._count):
            if n == self._ends_before:
                self._session.engine.end_jvm(137)
            yield pa.record_batch({"n": pa.array([n], pa.int64())})

    def close(self) -> None: ...


def numbers(session: Session, count: int, begun: Callable[[], Any], ends_before: int | None = None) -> Numbers:
    """With `ends_before`, only the first time that it runs."""
    return Numbers(session, count, ends_before if begun() == 1 else None)
