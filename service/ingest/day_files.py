"""What is ingested, and what came of it, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from service.commits.commit import CommitResult
from service.commits.tokens import PlanToken
from service.engine.jobs.ingest.restate import Replaced
from service.errors import FirnError
from service.ingest.drift import Drift
from service.ingest.sources.fetch import Source
from service.ledger.ingestions import IngestMode
from service.model.ingest.dataset import Dataset


@dataclass(frozen=True)
class DayFile:
    """A file with the rows of a date."""

    day: date
    source: Source
    version: tuple[int, int] | None = None
    """Its size and time of change, in milliseconds, that it must have; None if any will do."""


@dataclass(frozen=True)
class IngestOptions:
    mode: IngestMode = "restate"
    dataset: Dataset | None = None
    """The rules to read the files by; default: those of the table."""
    dry_run: bool = False
    token: PlanToken | None = None
    request: str = ""
    """A digest of the request, for the plan token of a dry run."""
    accept_drift: bool = False
    """Whether new, missing and retyped columns change the table, whatever the dataset says."""
    keep_going: bool = False
    """Whether a file that is refused leaves the others to be ingested; else it refuses all."""


@dataclass
class IngestProgress:
    """The progress of an ingest. The worker writes it, anybody may read it."""

    phase: str = "fetching"
    files_total: int = 0
    files_read: int = 0
    bytes_read: int = 0
    records_read: int = 0
    records_ingested: int = 0
    records_rejected: int = 0


@dataclass(frozen=True)
class FileOutcome:
    """What came of one file."""

    day: date
    period: str
    file: str
    content_hash: str = ""
    run_id: str = ""
    bytes: int = 0
    records_read: int = 0
    records_ingested: int = 0
    rejects: Mapping[str, int] = field(default_factory=dict)
    """How many rows broke each rule first."""
    drift: Drift = field(default_factory=Drift)
    is_unchanged: bool = False
    """Whether exactly this was ingested before, so that nothing was done."""
    error: FirnError | None = None
    """Why the file was refused."""

    @property
    def records_rejected(self) -> int:
        return sum(self.rejects.values())


@dataclass(frozen=True)
class IngestOutcome:
    """What an ingest did, or would do."""

    commit: CommitResult
    files: tuple[FileOutcome, ...]
    replaced: Replaced = field(default_factory=Replaced)
    plan_token: str | None = None
    warnings: tuple[str, ...] = ()
    """What failed after the commit, and can be repeated."""
