"""Long work that a client asks after: its state, how far it is, and what came of it, also after a restart."""

import json
import logging
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.errors import FirnError, KeyBusy, LedgerUnavailable, NotFound
from service.jobs.job import NOTHING, Job, State, described, interrupted
from service.jobs.running import Running
from service.ledger.jobs import LIVE, JobNote, JobNotes
from service.metrics.metrics import Metrics

log = logging.getLogger("firn.jobs")

_KEPT_MS = 7 * 24 * 3600 * 1000


class Jobs:
    """Every job of this process, and the notes of those of others."""

    def __init__(self, notes: JobNotes, commits: Commits, metrics: Metrics | None = None) -> None:
        self._notes = notes
        self._commits = commits
        self._lock = threading.Lock()
        self._live: dict[str, Job] = {}
        self._metrics = metrics or Metrics()
        self._metrics.read("firn_jobs", self._counted)
        self._stopping = False

    def begin(
        self,
        kind: str,
        table: Table,
        progress: Any,
        promise: bytes = b"null",
        running: Running | None = None,
        state: State = "running",
    ) -> str:
        """A new job's id, which nobody can guess. `progress` is an instance of any dataclass that JSON can carry.

        `promise` is the answer, as JSON, should its batch turn out to have been committed by a process that did not
        live to say so; its metadata gets the snapshot's id. `running` is what whoever does the work looks at.
        """
        now = _now_ms()
        self._tidy(now)
        running = running or Running()
        running.id = uuid.uuid4().hex
        shown = json.dumps(asdict(progress))
        note = JobNote(running.id, kind, table.name, table.uuid, state, None, shown, promise, now)
        self._notes.begin(note)
        with self._lock:
            self._live[note.id] = Job(note, progress, running, state)
        self._metrics.job(kind, state)
        return note.id

    def started(self, job_id: str) -> bool:
        """One that was queued runs now; false where it has ended meanwhile."""
        with self._lock:
            job = self._live.get(job_id)
            if job is None or job.state != "queued":
                return False
            job.state = "running"
        self._metrics.job(job.note.kind, "running")
        try:
            self._notes.started(job_id)
        except LedgerUnavailable as e:  # its end will be noted
            log.error("the start of job %s could not be noted: %s", job_id, e.message)
        return True

    def tries(self, job_id: str, batch: str) -> None:
        """It is about to commit this batch: should the process end, the table's history says whether it did."""
        self._notes.try_batch(job_id, batch)

    def done(self, job_id: str, answer: bytes) -> None:
        """It has succeeded, with this answer."""
        self._end(job_id, "done", answer)

    def failed(self, job_id: str, error: bytes) -> None:
        """It has failed, with this error."""
        self._end(job_id, "failed", error)

    def cancelled(self, job_id: str, error: bytes) -> None:
        """It was called off; the error may say how far it had come."""
        self._end(job_id, "cancelled", error)

    def interrupted(self, job_id: str) -> None:
        """This process ends before it does."""
        with self._lock:
            job = self._live.get(job_id)
        if job is not None:
            self._end(job_id, "interrupted", interrupted(job.note.kind))

    def describe(self, job_id: str) -> dict[str, Any]:
        """What a client is told of a job; NotFound where there is none of that id."""
        with self._lock:
            job = self._live.get(job_id)
        if job is not None:
            return job.described()
        note = self._notes.find(job_id)
        if note is not None and note.state in LIVE and self._notes.left(note):
            with suppress(KeyBusy):  # somebody else is at it
                self._settle(note)
            note = self._notes.find(job_id)
        if note is None:
            raise NotFound(f"there is no job {job_id[:80]!r}; it may have ended more than a week ago")
        return described(note)

    def came_to_nothing(self, job_id: str) -> bool:
        """Whether a job has ended without success. Of one that nobody knows any more, nobody can say so."""
        try:
            return self.describe(job_id)["state"] in NOTHING
        except NotFound:
            return False

    def latest(self, tenant: str, namespace: str | None, limit: int) -> list[dict[str, Any]]:
        """What a client is told of a tenant's jobs, the latest first; what came of each, `describe` tells."""
        notes = self._notes.latest(tenant, namespace, limit)
        told = [self.describe(note.id) if note.state in LIVE else described(note) for note in notes]
        return [{name: value for name, value in job.items() if name not in ("result", "error")} for job in told]

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Call a job off, wherever it is, and say what is known of it now; one that has ended stays as it is.

        It ends a moment later, as `cancelled`, unless it is too late: then as it would have.
        """
        with self._lock:
            job = self._live.get(job_id)
        if job is None:
            note = self._notes.find(job_id)
            if note is not None and note.state in LIVE and not self._notes.left(note):
                self._notes.ask_cancel(job_id, _now_ms())
        elif job.live:
            job.running.cancel()
        return self.describe(job_id)

    def look_for_cancels(self) -> None:
        """Call off those of ours that other instances were asked to call off, and note how far ours are: for other
        instances, and for the next start should this one be killed.

        Ends that the ledger could not be told of are noted, too.
        """
        with self._lock:
            jobs = list(self._live.values())
        try:
            for job in jobs:
                if not job.live:
                    self._note_end(job)
            asked = self._notes.to_cancel() if self._notes.shared and any(job.live for job in jobs) else frozenset()
            for job in jobs:
                if job.live and job.note.id in asked:
                    job.running.cancel()
                if job.live:
                    self._notes.show(job.note.id, job.progress_json)
        except FirnError as e:
            log.info("the ledger could not be asked which jobs to cancel: %s", e.message)

    def stop(self) -> None:
        """Call off what is left, as this process ends: what fails from now on was interrupted."""
        with self._lock:
            self._stopping = True
            jobs = list(self._live.values())
        for job in jobs:
            if job.live:
                job.running.cancel()

    def recover(self) -> int:
        """Find out what became of jobs that an earlier process did not finish; how many there were."""
        left = [note for note in self._notes.unfinished() if self._notes.left(note)]
        for note in left:
            try:
                self._settle(note)
            except Exception as e:  # it keeps nobody else's from being served, and is tried again when somebody asks
                log.error("what became of job %s of %s cannot be read: %s", note.id, note.table, e)
        return len(left)

    def _settle(self, note: JobNote) -> None:
        committed = self._commits.outcome(note.batch) if note.batch is not None else None
        if committed is None:
            self._notes.settle(note.id, "interrupted", interrupted(note.kind), _now_ms())
            self._metrics.job(note.kind, "interrupted")
            return
        answer = json.loads(note.outcome)
        answer["metadata"]["snapshot_id"] = committed.snapshot_id
        self._notes.settle(note.id, "done", json.dumps(answer).encode(), _now_ms())
        self._metrics.job(note.kind, "done")

    def _end(self, job_id: str, state: State, outcome: bytes) -> None:
        """The first end counts: a stop does not wait for work that takes too long to notice it."""
        with self._lock:
            job = self._live.get(job_id)
            if job is None or not job.live:
                return
            if self._stopping and state in ("failed", "cancelled"):
                state, outcome = "interrupted", interrupted(job.note.kind)
            job.outcome, job.ended_ms, job.state = outcome, _now_ms(), state
        self._metrics.job(job.note.kind, state)
        try:
            self._note_end(job)
        except LedgerUnavailable as e:  # it is tried again
            log.error("the end of job %s could not be noted: %s", job_id, e.message)

    def _note_end(self, job: Job) -> None:
        self._notes.end(job.note.id, job.state, job.progress_json, job.outcome, job.ended_ms or 0)
        with self._lock:
            self._live.pop(job.note.id, None)

    def _counted(self) -> Counter[tuple[str, ...]]:
        """How many there are that have not ended, by kind and state."""
        with self._lock:
            return Counter((job.note.kind, job.state) for job in self._live.values() if job.live)

    def _tidy(self, now: int) -> None:
        self._notes.forget(now - _KEPT_MS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
