"""Whether exported files are up to date: decided from what was ingested and committed since they were written."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from service.catalog.lineage import lineage
from service.catalog.tables import Table
from service.ingest.history import ingestions_of
from service.ledger.exports import ExportRecord
from service.ledger.ingestions import IngestionRecord
from service.model.ingest.reserved import INGEST_PROPERTY


@dataclass(frozen=True)
class DatedChange:
    """A commit that changed rows: of some dates, or of any."""

    sequence_number: int
    dates: frozenset[str] | None = None


@dataclass(frozen=True)
class ExportState:
    """The state of a table that its exported files should have."""

    sequence_number: int
    """Of the current snapshot."""
    runs: Mapping[str, Sequence[str]]
    """For each date, the ids of the ingests that its rows are from."""
    changes: Sequence[DatedChange] = ()
    view: str = ""
    """A digest of what the files show of the rows; empty for all of it."""

    @property
    def days(self) -> list[date]:
        """The dates that were ingested, in order."""
        return [date.fromisoformat(day) for day in sorted(self.runs)]

    def digest(self, days: Iterable[date]) -> str:
        """Which ingests the rows of some dates are from, and what is shown of them."""
        text = "\n".join(f"{day} {' '.join(self.runs.get(str(day), ()))}" for day in sorted(days)) + self.view
        return hashlib.sha256(text.encode()).hexdigest()

    def is_current(self, written: ExportRecord | None, days: Sequence[date]) -> bool:
        """Whether a file with the rows of some dates, if it was written, still has them."""
        if written is None or written.runs != self.digest(days) or written.sequence_number > self.sequence_number:
            return False
        names = {str(day) for day in days}
        later = (one for one in self.changes if one.sequence_number > written.sequence_number)
        return not any(one.dates is None or one.dates & names for one in later)


def export_state(table: Table, current: Mapping[str, Sequence[IngestionRecord]]) -> ExportState:
    """The state of a table, given the ingestions of each of its dates, as files for who has its view should show it."""
    numbers = {one.snapshot_id: one.sequence_number for one in table.snapshots()}
    changes = []
    for commit in lineage(table):
        dates = None
        if INGEST_PROPERTY in commit.summary:
            dates = frozenset(one.ingest_date for one in ingestions_of(commit.summary, commit.snapshot_id))
        elif commit.leaves_rows:
            continue
        changes.append(DatedChange(numbers[commit.snapshot_id], dates))
    head = table.current_snapshot_id
    runs = {day: [one.run_id for one in done] for day, done in current.items()}
    view = "" if table.view is None else hashlib.sha256(repr(table.view).encode()).hexdigest()
    return ExportState(0 if head is None else numbers[head], runs, tuple(changes), view)
