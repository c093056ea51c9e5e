"""Work that goes on when its request was answered: on threads of its own, until it is done or called off."""

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from service.catalog.tables import Table
from service.errors import Cancelled, FirnError, ShuttingDown
from service.failures import said, unforeseen
from service.jobs.jobs import Jobs
from service.jobs.running import Running

log = logging.getLogger("firn.jobs")
Work = Callable[[Running], bytes]


class Background:
    """Runs so many jobs at once; the others are queued."""

    def __init__(self, jobs: Jobs, threads: int) -> None:
        self._jobs = jobs
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="firn-background")
        self._changed = threading.Condition()
        self._under_way: dict[str, Running] = {}
        self._stopping = False

    def start(self, kind: str, table: Table, progress: Any, work: Work) -> str:
        """Have `work` done in the background; its job's id. It returns the answer, as JSON, and writes to `progress`,
        an instance of any dataclass, how far it is.

        Called off, it raises Cancelled, soon: whatever else it raises then means the same.
        """
        if self._stopping:
            raise _stopping()
        running = Running()
        job_id = self._jobs.begin(kind, table, progress, running=running, state="queued")
        with self._changed:
            self._under_way[job_id] = running
        try:
            future = self._pool.submit(self._run, running, work)
        except RuntimeError as e:  # stopped meanwhile
            self._jobs.interrupted(job_id)
            self._leave(running)
            raise _stopping() from e
        future.add_done_callback(lambda done: self._called_off(running, done))
        running.on_cancel(future.cancel)
        return job_id

    @property
    def busy(self) -> bool:
        """Whether something is still under way."""
        with self._changed:
            return bool(self._under_way)

    def stop(self) -> None:
        """Take nothing more, and call off what is there. Returns at once."""
        with self._changed:
            self._stopping = True
            under_way = list(self._under_way.values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for running in under_way:
            running.cancel()

    def close(self, seconds: float) -> None:
        """Stop, and give what runs so long to notice; all that has not ended by then is noted as interrupted."""
        self.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout=seconds)
            left = list(self._under_way)
        for job_id in left:
            self._jobs.interrupted(job_id)

    def _run(self, running: Running, work: Work) -> None:
        try:
            if not self._jobs.started(running.id):
                return
            running.check()
            answer = work(running)
        except BaseException as e:
            self._failed(running, e)
        else:
            self._jobs.done(running.id, answer)
        finally:
            self._leave(running)

    def _called_off(self, running: Running, done: "Future[None]") -> None:
        """It had not begun."""
        if done.cancelled():
            self._failed(running, Cancelled())
            self._leave(running)

    def _failed(self, running: Running, failure: BaseException) -> None:
        if isinstance(failure, Cancelled) or running.cancelled:
            if self._stopping:
                self._jobs.interrupted(running.id)
                return
            # What a job meets whose Spark jobs were cancelled can be anything.
            told = failure if isinstance(failure, Cancelled) else Cancelled()
            if told is not failure:
                log.info("job %s was cancelled, and ended with: %s", running.id, failure)
            self._jobs.cancelled(running.id, _json(told))
            return
        error = failure if isinstance(failure, FirnError) else unforeseen(log, f"job {running.id}", failure)
        if error is failure:
            log.info("job %s failed: %s: %s", running.id, error.code, error.message)
        self._jobs.failed(running.id, _json(error))

    def _leave(self, running: Running) -> None:
        with self._changed:
            self._under_way.pop(running.id, None)
            self._changed.notify_all()


def _json(error: FirnError) -> bytes:
    return json.dumps(said(error), default=str).encode()


def _stopping() -> ShuttingDown:
    return ShuttingDown("the service is stopping and takes no new requests; send this one to it again once it is back")
