"""The jobs of this process, and the recovery of those that other instances left."""

import json
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.errors import Cancelled, CommitConflict, FirnError, KeyBusy, LedgerUnavailable, NotFound
from service.jobs.job import NOTHING, Job, State, described, interrupted, taken_over
from service.ledger.jobs import LIVE, JobRecord, JobRecords, Place
from service.ledger.ledger import Also, Transaction
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.failures import error_fields, internal_error, visible
from service.model.times import now_ms

log = logging.getLogger("firn.jobs")

DAY_MS = 24 * 3600 * 1000
_KEPT_MS = 7 * DAY_MS
_TRIES = 10


@dataclass(frozen=True)
class Kind:
    """The properties of a kind of work."""

    writes: str | None = None
    """What users call a job that has files of no snapshot yet, such as "a compaction"; None if it has none."""
    clean_up: Callable[[JobRecord], Mapping[str, Any]] | None = None
    """Deletes what an interrupted job left, and returns what to add to its details. It may need Spark."""
    kept_ms: int | None = _KEPT_MS
    """How long after its end its row is kept; None if `Jobs` must not delete it."""
    is_resumed: bool = False
    """Whether another instance resumes it; then `Jobs` does not settle it."""
    shown: Callable[[JobRecord], Mapping[str, Any]] | None = None
    """For work that keeps its own records and is not in LIST_JOBS: its progress, and its result once it has ended."""


class ClaimTaken(CommitConflict):
    """Another unfinished job has the claim."""


class Jobs:
    """Begins, shows, cancels and recovers jobs."""

    def __init__(self, records: JobRecords, commits: Commits, metrics: Metrics | None = None) -> None:
        self.records = records
        self._commits = commits
        self._kinds: dict[str, Kind] = {}
        self._lock = threading.Lock()
        self._live: dict[str, Job] = {}
        self._metrics = metrics or Metrics()
        self._metrics.read("firn_jobs", self._counted)
        self._stopping = False

    def register(self, name: str, kind: Kind) -> None:
        """Set the properties of a kind of work, unless they are the defaults."""
        self._kinds[name] = kind

    def accept(
        self,
        kind: str,
        table: Table,
        progress: Any,
        promise: bytes = b"null",
        call: Call | None = None,
        state: State = "running",
        **details: Any,
    ) -> Job:
        """A new listed job. `progress` is an instance of any dataclass that JSON can represent.

        `promise` is the response, as JSON, if the job's batch was committed by a process that ended before it could
        respond; its metadata gets the snapshot's id. `call` is the job's own: cancelling the job cancels it. The worker
        ends the job: `done`, `failed` or `cancelled`.
        """
        job = self._begin(kind, table, progress, call or Call(), details, listed=True, state=state, outcome=promise)
        job.call.job_id = job.id
        return job

    @contextmanager
    def begin(
        self,
        kind: str,
        table: Table,
        progress: Any,
        call: Call,
        *,
        claim: str | None = None,
        also: Also | None = None,
        **details: Any,
    ) -> Iterator[Job]:
        """A job whose work starts with the block; from here on it may have files that no snapshot holds.

        It ends with the block, unless it was accepted before with this call: then the caller of `accept` ends it.
        LedgerUnavailable before the block if it cannot be recorded; never after it. `claim` is what only one unfinished
        job of all instances can have: ClaimTaken before the block if another one has it. `also` records something else
        in the same transaction of the ledger as the new job.
        """
        accepted = self._job(call.job_id)
        if accepted is not None:
            accepted.record = replace(accepted.record, started_ms=now_ms())
            accepted.details = details
            self.records.start(accepted.current)
            yield accepted
            return
        job = self._begin(kind, table, progress, call, details, also, started_ms=now_ms(), claim=claim)
        try:
            yield job
        except BaseException as e:
            error = error_json(job, e) if isinstance(e, FirnError) else b"null"  # the request's owner logs other errors
            self._end(job, "cancelled" if isinstance(e, Cancelled) else "failed", error)
            raise
        self._end(job, "done", b"null")

    def started(self, job: Job) -> bool:
        """Record that a queued job runs now; false if it has ended in the meantime."""
        with self._lock:
            if job.record.state != "queued":
                return False
            job.record = replace(job.record, state="running")
        self._count(job.record)
        try:
            self.records.run(job.id)
        except LedgerUnavailable as e:  # its end will be recorded
            log.error("the start of job %s could not be recorded: %s", job.id, e.message)
        return True

    def tries(self, job: Job, batch: str, promise: bytes | None = None, within: Transaction | None = None) -> None:
        """Record the batch that is about to be committed: after a crash the table's history says whether it was.

        A promise takes the place of the one that the job was accepted with.
        """
        if not self.records.try_batch(job.record, batch, promise, within):
            raise taken_over()

    def end_within(self, job: Job, transaction: Transaction) -> None:
        """Record in a transaction of the caller's that a job is done. If the transaction succeeds, the caller sets
        `end_recorded`, so that the end of the job's block needs no other one."""
        self.records.end(replace(job.current, state="done", ended_ms=now_ms()), transaction)

    def done(self, job: Job, response: bytes) -> None:
        """End a job that has succeeded with this response."""
        self._end(job, "done", response)

    def failed(self, job: Job, error: bytes) -> None:
        """End a job that has failed with this error."""
        self._end(job, "failed", error)

    def cancelled(self, job: Job, error: bytes) -> None:
        """End a job that was cancelled; the error may say what it had done before."""
        self._end(job, "cancelled", error)

    def interrupted(self, job: Job) -> None:
        """End a job that this process cannot finish."""
        self._end(job, "interrupted", interrupted(job.record.kind))

    def describe(self, job_id: str) -> dict[str, Any]:
        """A listed job; NotFound if there is none of that id."""
        job = self._job(job_id)
        if job is not None and job.record.listed:
            return described(job.current, cancelling=job.call.cancelled)
        record = self.records.find(job_id)
        if record is not None and (shown := self._kind(record).shown):
            return described(record, shown=shown(record))
        if record is not None and record.listed and self._is_left(record):
            with suppress(KeyBusy):  # another instance settles it
                self._settle(record)
            record = self.records.find(job_id)
        if record is None or not record.listed or (record.ended_ms or now_ms()) < now_ms() - _KEPT_MS:
            raise job_not_found(job_id)
        return described(record)

    def ended_without_success(self, job_id: str) -> bool:
        """Whether a job has ended without success; false if its row was deleted, and for work that is resumed."""
        try:
            job = self.describe(job_id)
        except NotFound:
            return False
        return job["state"] in NOTHING and not self._kinds.get(job["kind"], Kind()).is_resumed

    def record_of(self, job_id: str) -> JobRecord:
        """What is recorded of a job, such as what it is about; NotFound if there is none of that id."""
        job = self._job(job_id)
        record = job.record if job is not None else self.records.find(job_id)
        if record is None:
            raise job_not_found(job_id)
        return record

    def latest(
        self, tenant: str, namespace: str | None, limit: int, after: Place | None = None
    ) -> list[dict[str, Any]]:
        """A tenant's listed jobs, the latest first, without the outcomes that `describe` shows; those after a place."""
        records = self.records.listed(tenant, namespace, limit, now_ms() - _KEPT_MS, after)
        shown = [self.describe(record.id) if record.state in LIVE else described(record) for record in records]
        return [{name: value for name, value in job.items() if name not in ("result", "error")} for job in shown]

    def writing(self, table_uuid: str) -> list[JobRecord]:
        """Jobs of all instances that may have files of a table which no snapshot holds yet, the first to start first. A
        job whose instance is gone is taken from it, so that it can commit nothing any more, and left out."""
        found = []
        for record in self.records.unfinished():
            running = record.started_ms and record.state == "running"
            if record.table_uuid != table_uuid or not running or self._kind(record).writes is None:
                continue
            job = self._job(record.id)
            if self._is_left(record):
                self.records.take(record, owner="")
            elif job is None or job.live:  # the end of one of ours may not be recorded yet
                found.append(record)
        return sorted(found, key=lambda record: (record.started_ms or 0, record.id))

    def what(self, record: JobRecord) -> str:
        """What users call a job that writes files, such as "a compaction"."""
        return self._kind(record).writes or record.kind

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job of any instance, unless it has ended, and describe it. It ends a moment later as `cancelled`, or
        if it is too late, as it would have without this."""
        job = self._job(job_id)
        if job is None:
            record = self.records.find(job_id)
            if record is not None and self._kind(record).is_resumed:
                self._take_away(record)
            elif record is not None and record.listed and record.state in LIVE and not self._is_left(record):
                self.records.request_cancel(job_id, now_ms())
        elif job.live and job.record.listed:
            job.call.cancel()
        return self.describe(job_id)

    def _take_away(self, record: JobRecord) -> None:
        """Cancel work that is resumed: no instance has it any more, so that nothing more of it is committed."""
        for _ in range(_TRIES):  # its heartbeat may come in between
            if record.ended_ms is not None or self.records.take(record, owner="", state="cancelled", ended_ms=now_ms()):
                return
            record = self.records.find(record.id) or record

    def look(self) -> None:
        """Record the progress of our jobs, cancel those for which other instances requested it, and record ends that
        could not be recorded before."""
        with self._lock:
            jobs = list(self._live.values())
        try:
            for job in jobs:
                if not job.live:
                    self._record_end(job)
            live = {job.id: job for job in jobs if job.live}
            to_cancel = self.records.look({id: job.progress_json for id, job in live.items()}) if live else set()
            for id in to_cancel & set(live):
                live[id].call.cancel()
        except FirnError as e:
            log.info("the jobs to cancel could not be read from the ledger: %s", e.message)

    def stop(self) -> None:
        """Cancel listed jobs because this process ends. Jobs that fail from now on were interrupted."""
        with self._lock:
            self._stopping = True
            jobs = list(self._live.values())
        for job in jobs:
            if job.live and job.record.listed:
                job.call.cancel()

    def settle(self) -> int:
        """Record the outcomes of jobs whose instances are gone; returns their number. It needs no Spark."""
        left = [record for record in self.records.unfinished() if self._is_left(record)]
        for record in left:
            try:
                self._settle(record)
            except Exception as e:  # the other jobs are settled; this one is tried again
                log.error("the outcome of job %s of %s cannot be read: %s", record.id, record.table, e)
        return len(left)

    def recover(self) -> int:
        """Settle the jobs of instances that are gone, and delete what they left, and old rows; returns their number."""
        settled = self.settle()
        for record in self.records.with_leftover_files():
            if self.records.left(record):
                self._clean_up(record)
        kept_ms = {name: kind.kept_ms for name, kind in self._kinds.items()}
        self.records.forget(kept_ms, _KEPT_MS, now_ms())
        return settled

    def _begin(
        self,
        kind: str,
        table: Table,
        progress: Any,
        call: Call,
        details: dict[str, Any],
        also: Also | None = None,
        **values: Any,
    ) -> Job:
        values |= {"owner": self.records.me, "requested_by": call.requested_by or f"request {call.id}"}
        record = JobRecord(uuid.uuid4().hex, kind, table.name, table.uuid, created_ms=now_ms(), **values)
        job = Job(record, progress, call, self.records, details)
        with self._lock:  # before it is recorded, or it would seem to be left
            self._live[job.id] = job
        try:
            if not self.records.begin(job.current, also):
                raise ClaimTaken(f"another instance works on {table.name}; send the request again in a moment")
        except BaseException:
            with self._lock:
                del self._live[job.id]
            raise
        self._count(record)
        return job

    def _end(self, job: Job, state: State, outcome: bytes) -> None:
        """The first end counts: a stop does not wait for work that is slow to notice it."""
        with self._lock:
            if not job.live:
                return
            if self._stopping and state in ("failed", "cancelled"):
                state, outcome = "interrupted", interrupted(job.record.kind)
            # An interrupted job may go on until this process has ended.
            leaves_files = job.leaves_files or (state == "interrupted" and self._may_leave_files(job.record))
            job.record = replace(job.record, state=state, outcome=outcome, ended_ms=now_ms(), leaves_files=leaves_files)
        self._count(job.record)
        try:
            self._record_end(job)
        except LedgerUnavailable as e:  # it is tried again
            log.error("the end of job %s could not be recorded: %s", job.id, e.message)

    def _record_end(self, job: Job) -> None:
        if not (job.end_recorded and job.record.state == "done"):
            self.records.end(job.current)
        with self._lock:
            self._live.pop(job.id, None)

    def _settle(self, record: JobRecord) -> None:
        """Take a job from an instance that is gone, and record whether it is done or was interrupted."""
        committed = self._commits.batches.committed(record.batch) if record.batch is not None else None
        state, outcome = "interrupted", interrupted(record.kind)
        if committed is not None:
            response = json.loads(record.outcome) or {"metadata": {}}
            response["metadata"]["snapshot_id"] = str(committed.snapshot_id)
            state, outcome = "done", json.dumps(response).encode()
        leaves_files = state == "interrupted" and self._may_leave_files(record)
        ended = {"state": state, "outcome": outcome, "ended_ms": now_ms(), "leaves_files": leaves_files}
        if self.records.take(record, owner="", **ended) is not None:
            self._count(replace(record, state=state))

    def _clean_up(self, record: JobRecord) -> None:
        """Delete what a job left. It has ended, so that its instance can commit nothing for it any more."""
        clean_up = self._kind(record).clean_up
        try:
            details = clean_up(record) if clean_up else {}
        except Exception as e:  # one unreadable table must not affect the others; it is tried again
            log.error("files that %s %s of %s left could not be deleted: %s", record.kind, record.id, record.table, e)
            return
        self.records.cleaned_up(record.id, **details)

    def _may_leave_files(self, record: JobRecord) -> bool:
        return record.started_ms is not None and self._kind(record).clean_up is not None

    def _kind(self, record: JobRecord) -> Kind:
        return self._kinds.get(record.kind, Kind())

    def _job(self, job_id: str) -> Job | None:
        with self._lock:
            return self._live.get(job_id)

    def _is_left(self, record: JobRecord) -> bool:
        """Whether no instance works on a job: its owner is gone, or is this one, which does not know it."""
        kind = self._kind(record)
        if record.ended_ms is not None or kind.is_resumed:
            return False
        lost = record.owner == self.records.me and kind.writes is not None and self._job(record.id) is None
        return lost or self.records.left(record)

    def _count(self, record: JobRecord) -> None:
        if record.listed:
            self._metrics.job(record.kind, record.state)

    def _counted(self) -> Counter[tuple[str, ...]]:
        """The number of listed jobs that have not ended, by kind and state."""
        with self._lock:
            records = [job.record for job in self._live.values() if job.live and job.record.listed]
        return Counter((record.kind, record.state) for record in records)


def job_not_found(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id[:80]!r}; it may have ended more than a week ago")


def error_json(job: Job, failure: BaseException) -> bytes:
    """The error of a failed job as JSON; an unexpected one is logged."""
    error = failure if isinstance(failure, FirnError) else internal_error(log, f"job {job.id}", failure)
    shown = visible(error, job.call.principal, job.record.table.tenant)
    return json.dumps(error_fields(shown), default=str).encode()
