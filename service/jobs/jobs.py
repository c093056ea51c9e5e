"""Every job of this process, and what became of those that other instances left."""

import json
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.errors import Cancelled, CommitConflict, FirnError, KeyBusy, LedgerUnavailable, NotFound
from service.jobs.job import NOTHING, Job, State, described, interrupted
from service.ledger.jobs import LIVE, JobRecord, JobRecords
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.failures import error_fields, internal_error

log = logging.getLogger("firn.jobs")

DAY_MS = 24 * 3600 * 1000
_KEPT_MS = 7 * DAY_MS


@dataclass(frozen=True)
class Kind:
    """What a kind of work needs beside its rows."""

    writes: str | None = None
    """What a reader calls one that has files which no snapshot holds yet, as "a compaction"; None if it has none."""
    clean_up: Callable[[JobRecord], Mapping[str, Any]] | None = None
    """Removes what an interrupted job left, and returns what to add to its details. It may need Spark."""
    kept_ms: int | None = _KEPT_MS
    """How long after its end its row is kept; None if that is not for `Jobs` to say."""
    is_resumed: bool = False
    """Whether another instance goes on with it; `Jobs` leaves these alone."""


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
        """Say what a kind of work needs; one that needs nothing need not be registered."""
        self._kinds[name] = kind

    def accept(
        self,
        kind: str,
        table: Table,
        progress: Any,
        promise: bytes = b"null",
        call: Call | None = None,
        state: State = "running",
    ) -> Job:
        """A new job that is listed, whose id nobody can guess. `progress` is an instance of any dataclass that JSON can
        carry.

        `promise` is the response, as JSON, should its batch turn out to have been committed by a process that did not
        live to say so; its metadata gets the snapshot's id. `call` is the job's own: cancelling the job cancels it.
        Whoever does the work ends the job: `done`, `failed` or `cancelled`.
        """
        job = self._begin(kind, table, progress, call or Call(), {}, listed=True, state=state, outcome=promise)
        job.call.job_id = job.id
        return job

    @contextmanager
    def begin(self, kind: str, table: Table, progress: Any, call: Call, **details: Any) -> Iterator[Job]:
        """A job whose work has its turn, for the block; from here on it may have files that no snapshot holds.

        It ends as the block does, unless it was accepted before, with this call: then whoever accepted it ends it.
        LedgerUnavailable before the block if it cannot be noted; never after it.
        """
        with self._lock:
            accepted = self._live.get(call.job_id)
        if accepted is not None:
            accepted.record = replace(accepted.record, started_ms=_now_ms())
            accepted.details = details
            self.records.start(accepted.current)
            yield accepted
            return
        job = self._begin(kind, table, progress, call, details, started_ms=_now_ms())
        try:
            yield job
        except BaseException as e:
            error = error_json(job, e) if isinstance(e, FirnError) else b"null"  # whoever has the request logs others
            self._end(job, "cancelled" if isinstance(e, Cancelled) else "failed", error)
            raise
        self._end(job, "done", b"null")

    def started(self, job: Job) -> bool:
        """A job that was queued runs now; false if it has ended in the meantime."""
        with self._lock:
            if job.record.state != "queued":
                return False
            job.record = replace(job.record, state="running")
        self._count(job.record)
        try:
            self.records.run(job.id)
        except LedgerUnavailable as e:  # its end will be noted
            log.error("the start of job %s could not be noted: %s", job.id, e.message)
        return True

    def tries(self, job: Job, batch: str) -> None:
        """It is about to commit this batch: should the process end, the table's history says whether it did."""
        if not self.records.try_batch(job.record, batch):
            raise _taken()

    def done(self, job: Job, response: bytes) -> None:
        """It has succeeded, with this response."""
        self._end(job, "done", response)

    def failed(self, job: Job, error: bytes) -> None:
        """It has failed, with this error."""
        self._end(job, "failed", error)

    def cancelled(self, job: Job, error: bytes) -> None:
        """It was cancelled; the error may say how far it had come."""
        self._end(job, "cancelled", error)

    def interrupted(self, job: Job) -> None:
        """This process ends before it does."""
        self._end(job, "interrupted", interrupted(job.record.kind))

    def describe(self, job_id: str) -> dict[str, Any]:
        """A listed job; NotFound if there is none of that id."""
        with self._lock:
            job = self._live.get(job_id)
        if job is not None and job.record.listed:
            return job.described()
        record = self.records.find(job_id)
        if record is not None and record.listed and self._is_left(record):
            with suppress(KeyBusy):  # somebody else is at it
                self._settle(record)
            record = self.records.find(job_id)
        if record is None or not record.listed or (record.ended_ms or _now_ms()) < _now_ms() - _KEPT_MS:
            raise NotFound(f"there is no job {job_id[:80]!r}; it may have ended more than a week ago")
        return described(record)

    def came_to_nothing(self, job_id: str) -> bool:
        """Whether a job has ended without success. Of one that nobody knows any more, nobody can say so."""
        try:
            return self.describe(job_id)["state"] in NOTHING
        except NotFound:
            return False

    def latest(self, tenant: str, namespace: str | None, limit: int) -> list[dict[str, Any]]:
        """A tenant's listed jobs, the latest first and without their outcomes, which `describe` has."""
        records = self.records.listed(tenant, namespace, limit, _now_ms() - _KEPT_MS)
        shown = [self.describe(record.id) if record.state in LIVE else described(record) for record in records]
        return [{name: value for name, value in job.items() if name not in ("result", "error")} for job in shown]

    def writing(self, table_uuid: str) -> list[JobRecord]:
        """Jobs of all instances that have files of a table which no snapshot holds yet, the first to start first.

        Those whose instance is gone are not among them, and can commit nothing from here on.
        """
        found = []
        for record in self.records.unfinished():
            if record.table_uuid != table_uuid or not record.started_ms or self._writes(record) is None:
                continue
            if record.state == "running" and self._is_left(record):
                self.records.take(record, owner="")
            elif record.state == "running" and self._is_live(record):
                found.append(record)
        return sorted(found, key=lambda record: (record.started_ms or 0, record.id))

    def what(self, record: JobRecord) -> str:
        """What a reader calls a job that writes files, as "a compaction"."""
        return self._writes(record) or record.kind

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job, whichever instance has it, and show it as it is now; one that has ended stays as it is.

        It ends a moment later, as `cancelled`, unless it is too late: then as it would have.
        """
        with self._lock:
            job = self._live.get(job_id)
        if job is None:
            record = self.records.find(job_id)
            if record is not None and record.listed and record.state in LIVE and not self._is_left(record):
                self.records.ask_cancel(job_id, _now_ms())
        elif job.live and job.record.listed:
            job.call.cancel()
        return self.describe(job_id)

    def look(self) -> None:
        """Note the progress of our jobs, for other instances, and for the next start should this one be killed; cancel
        those that other instances were asked to cancel; note ends that the ledger could not be told of."""
        with self._lock:
            jobs = list(self._live.values())
        try:
            for job in jobs:
                if not job.live:
                    self._note_end(job)
            live = {job.id: job for job in jobs if job.live}
            asked = self.records.look({id: job.progress_json for id, job in live.items()}) if live else set()
            for id in asked & set(live):
                live[id].call.cancel()
        except FirnError as e:
            log.info("the ledger could not be asked which jobs to cancel: %s", e.message)

    def stop(self) -> None:
        """Cancel what is listed, as this process ends: what fails from now on was interrupted."""
        with self._lock:
            self._stopping = True
            jobs = list(self._live.values())
        for job in jobs:
            if job.live and job.record.listed:
                job.call.cancel()

    def settle(self) -> int:
        """Note what became of the jobs of instances that are gone; how many there were. It needs no Spark."""
        left = [record for record in self.records.unfinished() if self._is_left(record)]
        for record in left:
            try:
                self._settle(record)
            except Exception as e:  # it keeps nobody else's from being served, and is tried again when somebody asks
                log.error("what became of job %s of %s cannot be read: %s", record.id, record.table, e)
        return len(left)

    def recover(self) -> int:
        """Settle the jobs of instances that are gone, and remove what they left; how many there were. Old rows go."""
        settled = self.settle()
        for record in self.records.leaving_files():
            if self.records.left(record):
                self._clean_up(record)
        kept_ms = {name: kind.kept_ms for name, kind in self._kinds.items()}
        self.records.forget(kept_ms, _KEPT_MS, _now_ms())
        return settled

    def _begin(
        self,
        kind: str,
        table: Table,
        progress: Any,
        call: Call,
        details: dict[str, Any],
        **values: Any,
    ) -> Job:
        requested_by = call.requested_by or f"request {call.id}"
        me, now_ms = self.records.me, _now_ms()
        record = JobRecord(
            uuid.uuid4().hex,
            kind,
            table.name,
            table.uuid,
            owner=me,
            requested_by=requested_by,
            created_ms=now_ms,
            **values,
        )
        job = Job(record, progress, call, self._must_be_ours, self._save, details)
        with self._lock:  # before it is noted, or it would seem to be nobody's
            self._live[job.id] = job
        try:
            self.records.begin(job.current)
        except BaseException:
            with self._lock:
                del self._live[job.id]
            raise
        self._count(record)
        return job

    def _must_be_ours(self, job: Job) -> None:
        if self.records.shared and not self.records.holds(job.record):
            raise _taken()

    def _save(self, job: Job) -> None:
        self.records.note(job.id, **job.details)

    def _end(self, job: Job, state: State, outcome: bytes) -> None:
        """The first end counts: a stop does not wait for work that takes too long to notice it."""
        with self._lock:
            if not job.live:
                return
            if self._stopping and state in ("failed", "cancelled"):
                state, outcome = "interrupted", interrupted(job.record.kind)
            # What is interrupted may be at work still, until this process has ended.
            leaves_files = job.leaves_files or (state == "interrupted" and self._may_leave_files(job.record))
            job.record = replace(
                job.record, state=state, outcome=outcome, ended_ms=_now_ms(), leaves_files=leaves_files
            )
        self._count(job.record)
        try:
            self._note_end(job)
        except LedgerUnavailable as e:  # it is tried again
            log.error("the end of job %s could not be noted: %s", job.id, e.message)

    def _note_end(self, job: Job) -> None:
        self.records.end(job.current)
        with self._lock:
            self._live.pop(job.id, None)

    def _settle(self, record: JobRecord) -> None:
        """Take a job from an instance that is gone, and note whether it is done or was interrupted."""
        committed = self._commits.batches.committed(record.batch) if record.batch is not None else None
        state, outcome = "interrupted", interrupted(record.kind)
        if committed is not None:
            response = json.loads(record.outcome) or {"metadata": {}}
            response["metadata"]["snapshot_id"] = committed.snapshot_id
            state, outcome = "done", json.dumps(response).encode()
        leaves_files = state == "interrupted" and self._may_leave_files(record)
        ended = {"state": state, "outcome": outcome, "ended_ms": _now_ms(), "leaves_files": leaves_files}
        if self.records.take(record, owner="", **ended) is not None:
            self._count(replace(record, state=state))

    def _clean_up(self, record: JobRecord) -> None:
        """Remove what a job left. It has ended, so whoever had it can commit nothing any more."""
        clean_up = self._kind(record).clean_up
        try:
            details = clean_up(record) if clean_up else {}
        except Exception as e:  # one unreadable table must not keep the others from being served; it is tried again
            log.error("what %s %s of %s left could not be removed: %s", record.kind, record.id, record.table, e)
            return
        self.records.cleaned_up(record.id, **details)

    def _may_leave_files(self, record: JobRecord) -> bool:
        return record.started_ms is not None and self._kind(record).clean_up is not None

    def _kind(self, record: JobRecord) -> Kind:
        return self._kinds.get(record.kind, Kind())

    def _writes(self, record: JobRecord) -> str | None:
        return self._kind(record).writes

    def _is_resumed(self, record: JobRecord) -> bool:
        return self._kind(record).is_resumed

    def _is_left(self, record: JobRecord) -> bool:
        """Whether nobody works on a job: its instance is gone, or is this one, and the answer to its note was lost."""
        if record.ended_ms is not None or self._is_resumed(record):
            return False
        lost = record.owner == self.records.me and self._writes(record) is not None and not self._knows(record)
        return lost or self.records.left(record)

    def _is_live(self, record: JobRecord) -> bool:
        """Whether a job goes on, as far as this process can tell: an end of ours may not be noted yet."""
        with self._lock:
            job = self._live.get(record.id)
        return job is None or job.live

    def _knows(self, record: JobRecord) -> bool:
        with self._lock:
            return record.id in self._live

    def _count(self, record: JobRecord) -> None:
        if record.listed:
            self._metrics.job(record.kind, record.state)

    def _counted(self) -> Counter[tuple[str, ...]]:
        """How many listed ones there are that have not ended, by kind and state."""
        with self._lock:
            records = [job.record for job in self._live.values() if job.live and job.record.listed]
        return Counter((record.kind, record.state) for record in records)


def error_json(job: Job, failure: BaseException) -> bytes:
    """What a job failed with, as JSON; what nobody foresaw is logged."""
    error = failure if isinstance(failure, FirnError) else internal_error(log, f"job {job.id}", failure)
    return json.dumps(error_fields(error), default=str).encode()


def _taken() -> CommitConflict:
    return CommitConflict("another instance could not see us and may have removed our files; send it again")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
