"""Jobs in the background: they go on after the response to their request, on threads of their own."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from service.catalog.tables import Table
from service.errors import Cancelled, FirnError, ShuttingDown, TooManyRequests
from service.fairness.shares import Shares
from service.fairness.threads import FairThreads
from service.jobs.job import Job
from service.jobs.jobs import Jobs, error_json
from service.model.call import Call

log = logging.getLogger("firn.jobs")
Work = Callable[[Call], bytes]


class Background:
    """Runs a number of jobs at once; a number of others are queued."""

    def __init__(self, jobs: Jobs, threads: int, most: int = 1000, tenant_share: int = 100) -> None:
        """`most` is how many jobs may be queued or run."""
        self._jobs = jobs
        self._room = Shares(most, tenant_share)
        self._pool = FairThreads(threads, "firn-background", tenant_share)
        self._changed = threading.Condition()
        self._in_progress: dict[str, Job] = {}
        self._stopping = False

    def start(self, kind: str, table: Table, progress: Any, call: Call, work: Work, **details: Any) -> str:
        """Do work in the background; returns the id of its job. The work gets a call of its own, which is cancelled
        with the job. It returns the response body, and reports its progress in `progress`, an instance of a dataclass.
        """
        if self._stopping:
            raise _stopping()
        reached = self._room.take(table.name.tenant)
        if reached is not None:
            count, whose = self._room.limit(reached)
            raise TooManyRequests(
                f"{count} jobs{whose} are queued or run already (FIRN_LIMITS__PENDING_MAINTENANCE); try again when one "
                "has ended"
            )
        try:
            job = self._jobs.accept(kind, table, progress, call=call.without_key(progress), state="queued", **details)
        except BaseException:
            self._room.leave(table.name.tenant)
            raise
        with self._changed:
            self._in_progress[job.id] = job
        try:
            future = self._pool.submit(table.name.tenant, partial(self._run, job, work))
        except RuntimeError as e:  # stopped in the meantime
            self._jobs.interrupted(job)
            self._remove(job)
            raise _stopping() from e
        future.add_done_callback(lambda done: self._cancelled_in_queue(job, done))
        job.call.on_cancel(future.cancel)
        return job.id

    @property
    def busy(self) -> bool:
        """Whether a job is queued or in progress."""
        with self._changed:
            return bool(self._in_progress)

    def stop(self) -> None:
        """Accept no more jobs, and cancel those there are. Returns at once."""
        with self._changed:
            self._stopping = True
            in_progress = list(self._in_progress.values())
        self._pool.shutdown(cancel=True)
        for job in in_progress:
            job.call.cancel()

    def close(self, seconds: float) -> None:
        """Stop, and wait for running jobs. Those that have not ended in time are recorded as interrupted."""
        self.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._in_progress, timeout=seconds)
            left = list(self._in_progress.values())
        for job in left:
            self._jobs.interrupted(job)

    def _run(self, job: Job, work: Work) -> None:
        try:
            if not self._jobs.started(job):
                return
            job.check()
            response = work(job.call)
        except BaseException as e:
            self._failed(job, e)
        else:
            self._jobs.done(job, response)
        finally:
            self._remove(job)

    def _cancelled_in_queue(self, job: Job, done: "Future[None]") -> None:
        if done.cancelled():
            self._failed(job, Cancelled())
            self._remove(job)

    def _failed(self, job: Job, failure: BaseException) -> None:
        if isinstance(failure, Cancelled) or job.call.cancelled:
            if self._stopping:
                self._jobs.interrupted(job)
                return
            # A job whose Spark jobs were cancelled can fail with any error.
            error = failure if isinstance(failure, Cancelled) else Cancelled()
            if error is not failure:
                log.info("job %s was cancelled, and ended with: %s", job.id, failure)
            self._jobs.cancelled(job, error_json(job, error))
            return
        if isinstance(failure, FirnError):
            log.info("job %s failed: %s: %s", job.id, failure.code, failure.message)
        self._jobs.failed(job, error_json(job, failure))

    def _remove(self, job: Job) -> None:
        with self._changed:
            ended = self._in_progress.pop(job.id, None)
            self._changed.notify_all()
        if ended is not None:
            self._room.leave(ended.record.table.tenant)


def _stopping() -> ShuttingDown:
    return ShuttingDown("the service is stopping and takes no new requests; send this one again once it is back")
