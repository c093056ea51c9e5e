"""Adopt the columns of a file that was refused because of them: they become part of the dataset and the table."""

from dataclasses import dataclass
from datetime import date
from typing import Literal

from service.catalog.tables import Table
from service.errors import InvalidRequest
from service.ingest.drift import Drift, adopted, open_drift, read_drift
from service.ingest.publish import IngestParts
from service.ledger.ingestions import IngestionRecord
from service.model.call import Call
from service.model.ingest.dataset import Dataset
from service.model.ingest.reserved import dataset_of


@dataclass(frozen=True)
class DriftChange:
    """A column that changes."""

    column: str
    change: Literal["added", "optional", "retyped"]
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class AcceptedDrift:
    """The file whose columns are adopted, what that changes, and the dataset with the changes."""

    record: IngestionRecord
    changes: tuple[DriftChange, ...]
    dataset: Dataset


@dataclass(frozen=True)
class DriftAcceptance:
    """Adopts the columns of refused files."""

    parts: IngestParts

    def accept(self, table: Table, day: date | None, call: Call, *, dry_run: bool) -> AcceptedDrift:
        """Adopt the columns of the last file that was refused because of them, of a date or of all.

        What was adopted before is no change. InvalidRequest if there is no such file, FileRejected if a column cannot
        become what the file has.
        """
        dataset = dataset_of(table.properties)
        if dataset is None:
            raise InvalidRequest(
                f"table {table.name.table!r} has no dataset yet: its first file gives it one; ingest a file first",
                field="table",
            )
        record = self._last_refused(table, day)
        assert record.drift is not None
        drift, types = read_drift(record.drift)
        drift = open_drift(drift, dataset)
        after = adopted(dataset, drift, types) if drift else dataset
        if drift and not dry_run:
            self.parts.preparation.adopt(table, after, call, stores=True)
        return AcceptedDrift(record, _changes(drift, dataset, after), after)

    def _last_refused(self, table: Table, day: date | None) -> IngestionRecord:
        found = [one for one in self.parts.history.records.of_table(table.uuid) if one.drift is not None]
        if day is not None:
            found = [one for one in found if one.ingest_date == str(day)]
        if not found:
            of = "" if day is None else f" of {day}"
            raise InvalidRequest(
                f"no file{of} was refused because its columns differ; ingest it first, which says what differs",
                field=None if day is None else "date",
            )
        return found[-1]


def _changes(drift: Drift, before: Dataset, after: Dataset) -> tuple[DriftChange, ...]:
    old = {column.name: column.type for column in before.columns}
    new = {column.name: column.type for column in after.columns}
    return (
        *(DriftChange(name.strip(), "added", after=new[name.strip()]) for name in drift.new),
        *(DriftChange(name, "optional") for name in drift.missing),
        *(DriftChange(name, "retyped", old[name], new[name]) for name in drift.retyped),
    )
