"""Long work that a client asks after: its state, how far it is, and what came of it, also after a restart."""

import json
import logging
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.errors import FirnError, KeyBusy, LedgerUnavailable, NotFound
from service.ledger.jobs import JobNote, JobNotes
from service.metrics.metrics import Metrics

log = logging.getLogger("firn.jobs")

State = Literal["running", "done", "failed"]
_KEPT_MS = 7 * 24 * 3600 * 1000


@dataclass
class Progress:
    """How far a piece of work is. Whoever does it writes here; anybody may read."""

    phase: str = "receiving"
    records: int = 0
    bytes: int = 0


@dataclass
class Job:
    """One piece of work that is under way in this process, or has just ended."""

    note: JobNote
    progress: Progress
    state: State = "running"
    outcome: bytes = b"null"
    ended_ms: int | None = None


class Jobs:
    """Every job of this process, and the notes of those of others."""

    def __init__(self, notes: JobNotes, commits: Commits, metrics: Metrics | None = None) -> None:
        self._notes = notes
        self._commits = commits
        self._lock = threading.Lock()
        self._live: dict[str, Job] = {}
        self._metrics = metrics or Metrics()
        self._metrics.read("firn_jobs", self._counted)

    def begin(self, kind: str, table: Table, progress: Progress, promise: bytes) -> str:
        """A new job's id, which nobody can guess. `promise` is the answer, as JSON, should its batch turn out to have
        been committed by a process that did not live to say so; its metadata gets the snapshot's id."""
        now = _now_ms()
        self._tidy(now)
        shown = json.dumps(asdict(progress))
        note = JobNote(uuid.uuid4().hex, kind, table.name, table.uuid, "running", None, shown, promise, now)
        self._notes.begin(note)
        with self._lock:
            self._live[note.id] = Job(note, progress)
        self._metrics.job(kind, note.state)
        return note.id

    def tries(self, job_id: str, batch: str) -> None:
        """It is about to commit this batch: should the process end, the table's history says whether it did."""
        self._notes.try_batch(job_id, batch)

    def done(self, job_id: str, answer: bytes) -> None:
        """It has succeeded, with this answer."""
        self._end(job_id, "done", answer)

    def failed(self, job_id: str, error: bytes) -> None:
        """It has failed, with this error."""
        self._end(job_id, "failed", error)

    def describe(self, job_id: str) -> dict[str, Any]:
        """What a client is told of a job; NotFound where there is none of that id."""
        with self._lock:
            job = self._live.get(job_id)
        if job is not None:
            return _described(job.note, job.state, asdict(job.progress), job.outcome, job.ended_ms)
        note = self._notes.find(job_id)
        if note is not None and note.state == "running" and self._notes.left(note):
            with suppress(KeyBusy):  # somebody else is at it
                self._settle(note)
            note = self._notes.find(job_id)
        if note is None:
            raise NotFound(f"there is no job {job_id[:80]!r}; it may have ended more than a week ago")
        return _described(note, note.state, json.loads(note.progress), note.outcome, note.ended_ms)

    def recover(self) -> int:
        """Find out what became of jobs that an earlier process did not finish; how many there were."""
        left = [note for note in self._notes.unfinished() if self._notes.left(note)]
        for note in left:
            try:
                self._settle(note)
            except FirnError as e:  # it is tried again when somebody asks
                log.error("what became of job %s of %s cannot be read: %s", note.id, note.table, e.message)
        return len(left)

    def _settle(self, note: JobNote) -> None:
        committed = self._commits.outcome(note.batch) if note.batch is not None else None
        if committed is None:
            self._notes.end(note.id, "failed", None, json.dumps(_INTERRUPTED).encode(), _now_ms())
            self._metrics.job(note.kind, "failed")
            return
        answer = json.loads(note.outcome)
        answer["metadata"]["snapshot_id"] = committed.snapshot_id
        self._notes.end(note.id, "done", None, json.dumps(answer).encode(), _now_ms())
        self._metrics.job(note.kind, "done")

    def _end(self, job_id: str, state: State, outcome: bytes) -> None:
        with self._lock:
            job = self._live[job_id]
        job.outcome, job.ended_ms = outcome, _now_ms()
        job.state = state
        self._metrics.job(job.note.kind, state)
        try:
            self._notes.end(job_id, state, json.dumps(asdict(job.progress)), outcome, job.ended_ms)
        except LedgerUnavailable as e:  # the next start finds out
            log.error("the end of job %s could not be noted: %s", job_id, e.message)
            return
        with self._lock:
            del self._live[job_id]

    def _counted(self) -> Counter[tuple[str, ...]]:
        """How many there are under way, by kind and state."""
        with self._lock:
            return Counter((job.note.kind, job.state) for job in self._live.values() if job.ended_ms is None)

    def _tidy(self, now: int) -> None:
        self._notes.forget(now - _KEPT_MS)


_INTERRUPTED = {
    "code": "UNAVAILABLE",
    "message": "the service ended while this job ran, and nothing of it was written; send the request again",
    "retryable": True,
}


def _described(note: JobNote, state: str, progress: Any, outcome: bytes, ended_ms: int | None) -> dict[str, Any]:
    said = {
        "id": note.id,
        "kind": note.kind,
        "state": state,
        "progress": progress,
        "created_at": _time(note.begun_ms),
    }
    if ended_ms is not None:
        said["ended_at"] = _time(ended_ms)
    if state in ("done", "failed"):
        said["result" if state == "done" else "error"] = json.loads(outcome)
    return said


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
