"""A job as this process has it, and what a client is told of one, whoever has it."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from service.jobs.running import Running
from service.ledger.jobs import LIVE, JobNote

State = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
BULK = "BULK"
# The ends of a job that has not done what was asked.
NOTHING = ("failed", "cancelled", "interrupted")


@dataclass
class Progress:
    """How far a bulk load is. Whoever does it writes here; anybody may read. Other kinds of work have their own."""

    phase: str = "receiving"
    records: int = 0
    bytes: int = 0


@dataclass
class Job:
    """One piece of work that waits or is under way in this process, or has just ended."""

    note: JobNote
    progress: Any
    running: Running
    state: State
    outcome: bytes = b"null"
    ended_ms: int | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def progress_json(self) -> str:
        return json.dumps(asdict(self.progress))

    def described(self) -> dict[str, Any]:
        cancelling = self.live and self.running.cancelled
        return _described(self.note, self.state, asdict(self.progress), self.outcome, self.ended_ms, cancelling)


def described(note: JobNote) -> dict[str, Any]:
    """What the ledger knows of a job, as a client is told."""
    cancelling = note.state in LIVE and note.cancelling
    return _described(note, note.state, json.loads(note.progress), note.outcome, note.ended_ms, cancelling)


def interrupted(kind: str) -> bytes:
    """The error of a job whose process ended before it did."""
    stays = "nothing of it was written" if kind == BULK else "what it had committed by then stays"
    return json.dumps(
        {
            "code": "UNAVAILABLE",
            "message": f"the service ended while this job ran, and {stays}; send the request again",
            "retryable": True,
        }
    ).encode()


def _described(
    note: JobNote, state: str, progress: Any, outcome: bytes, ended_ms: int | None, cancelling: bool
) -> dict[str, Any]:
    said = {
        "id": note.id,
        "kind": note.kind,
        "table": {"tenant_id": note.table.tenant, "namespace": note.table.namespace, "table": note.table.table},
        "state": state,
        "progress": progress,
        "created_at": _time(note.begun_ms),
    }
    if cancelling:
        said["cancelling"] = True
    if ended_ms is not None:
        said["ended_at"] = _time(ended_ms)
    if state not in LIVE:
        said["result" if state == "done" else "error"] = json.loads(outcome)
    return said


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
