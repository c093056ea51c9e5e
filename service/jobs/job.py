"""A job in this process, and the description of a job of any instance."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from service.commits.commit import Commits
from service.errors import CommitConflict
from service.ledger.jobs import LIVE, JobRecord, JobRecords
from service.model.call import Call
from service.model.progress import RowProgress
from service.model.times import utc

State = Literal["queued", "running", "done", "partly", "failed", "cancelled", "interrupted", "missed"]
BULK = "BULK"
# The states of a job that ended without success.
NOTHING = ("failed", "cancelled", "interrupted")


@dataclass
class BulkProgress(RowProgress):
    """The progress of a bulk load. Other kinds have their own."""

    phase: str = "receiving"
    records: int = 0
    """Received so far."""
    bytes: int = 0


@dataclass
class Job:
    """A job that waits or is in progress in this process, or has just ended."""

    record: JobRecord
    progress: Any
    call: Call
    records: JobRecords = field(repr=False)
    details: dict[str, Any] = field(default_factory=dict)
    end_recorded: bool = False
    """Whether the ledger has its end already, as done."""
    leaves_files: bool = False
    """Set by work that fails and cannot delete its files: the next recovery does."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def live(self) -> bool:
        return self.record.state in LIVE

    def check(self) -> None:
        """Raise Cancelled if it was cancelled."""
        self.call.check()

    def commit_gate(self) -> None:
        """Call it directly before a commit: Cancelled if the job was cancelled, CommitConflict if its schedule run was
        taken over, or if another instance considered this one gone and may have deleted its files."""
        self.check()
        self.call.commit_gate()
        if self.records.shared and not self.records.holds(self.record):
            raise taken_over()

    def gate_for(self, commits: Commits, batch: str) -> Callable[[], None]:
        """What to call directly before a commit: it raises if the batch or the job is not ours any more."""

        def gate() -> None:
            commits.must_be_ours(batch)
            self.commit_gate()

        return gate

    def note(self, **details: Any) -> None:
        """Add to the details that its kind reads, and save them in the ledger."""
        self.details |= details
        self.records.note(self.id, **self.details)

    @property
    def current(self) -> JobRecord:
        """Its row, with its current progress and details."""
        return replace(self.record, progress=self.progress_json, details=dict(self.details))

    @property
    def progress_json(self) -> str:
        progress = self.progress
        return json.dumps(progress.figures() if isinstance(progress, RowProgress) else asdict(progress))


def described(
    record: JobRecord, *, cancelling: bool | None = None, shown: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A job as LIST_JOBS and `/jobs/{id}` show it. `shown` takes the place of its own progress and outcome."""
    if cancelling is None:
        cancelling = record.cancelling_ms is not None
    name, live = record.table, record.state in LIVE
    found = {
        "id": record.id,
        "kind": record.kind,
        "table": {
            key: value
            for key, value in (("tenant_id", name.tenant), ("namespace", name.namespace), ("table", name.table))
            if value  # a schedule covers a namespace or a tenant
        },
        "state": record.state,
        "progress": {key: value for key, value in json.loads(record.progress).items() if value is not None},
        "created_at": utc(record.created_ms),
    }
    if cancelling and live:
        found["cancelling"] = True
    if record.ended_ms is not None:
        found["ended_at"] = utc(record.ended_ms)
    if shown is not None:
        found |= shown
    elif record.ended_ms is not None:
        found["result" if record.state == "done" else "error"] = json.loads(record.outcome)
    return found


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


def taken_over() -> CommitConflict:
    return CommitConflict("another instance could not see us and may have removed our files; send it again")
