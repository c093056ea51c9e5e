"""What was ingested into a table: the ledger's log, completed from the summaries of the table's snapshots."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from service.catalog.lineage import Commit, lineage
from service.catalog.tables import Table
from service.errors import LedgerUnavailable
from service.ledger.ingestions import IngestionRecord, IngestionRecords, read_ingestions
from service.model.ingest.fingerprint import converts_alike
from service.model.ingest.reserved import INGEST_PROPERTY, TABLE_FILE_PROPERTY

log = logging.getLogger("firn.ingest")

INGEST = "INGEST"
# Changes after which the rows of a date are still those of its file.
_KEEPS_ROWS = {INGEST, "COMPACT", "REPLAY"}


class IngestHistory:
    """Which files a table's rows are from."""

    def __init__(self, records: IngestionRecords) -> None:
        self.records = records

    def complete(self, table: Table) -> None:
        """Add to the ledger what only the table knows: after the ledger was lost, or could not be written to."""
        self.records.register(table.name, table.uuid, table.properties[TABLE_FILE_PROPERTY])
        in_table = [commit for commit in lineage(table) if INGEST_PROPERTY in commit.summary]
        if not in_table:
            return
        known = {one.snapshot_id for one in self.records.done(table.uuid)}
        for commit in in_table:
            if commit.snapshot_id not in known:
                self.records.add(table.name, table.uuid, ingestions_of(commit.summary, commit.snapshot_id))

    def current(self, table: Table, dates: list[str] | None = None) -> dict[str, list[IngestionRecord]]:
        """For each date, the ingestions since it was last restated, oldest first."""
        found: dict[str, list[IngestionRecord]] = {}
        for one in self.records.done(table.uuid, dates):
            if one.mode == "restate":
                found[one.ingest_date] = []
            found.setdefault(one.ingest_date, []).append(one)
        return found

    def has(self, table: Table, wanted: IngestionRecord, passes: Callable[[], bool] = lambda: False) -> bool:
        """Whether the table has exactly the rows of this file for its date already.

        `passes` says whether the rows of the date pass the filters by which the file would be read now. It is needed
        if the file was read by other filters, and its rejected rows were replayed by these.
        """
        done = self.current(table, [wanted.ingest_date]).get(wanted.ingest_date, [])
        if wanted.mode == "restate":
            if not done or not _was_read_so(done, wanted):
                return False
            since, is_same = done[0], all(one.dataset_hash == wanted.dataset_hash for one in done)
            return not self._was_changed(table, since) and (is_same or passes())
        same = [one for one in done if _content(one) == _content(wanted)]
        return bool(same) and not self._was_changed(table, same[-1])

    def record(self, table: Table, done: list[IngestionRecord]) -> None:
        """Record ingestions. It does not fail if the ledger does: the table knows them too."""
        try:
            self.records.add(table.name, table.uuid, done)
        except LedgerUnavailable as e:
            log.error("ingestions of %s could not be recorded yet: %s", table.name, e.message)

    def _was_changed(self, table: Table, since: IngestionRecord) -> bool:
        """Whether something may have changed rows other than by ingesting files."""
        if self.records.changes_since(table.uuid, since.ended_ms) - _KEEPS_ROWS:
            return True
        for commit in reversed(lineage(table)):
            if commit.snapshot_id == since.snapshot_id:
                return False
            if not _keeps_rows(commit):
                return True
        return False


def ingestions_of(summary: Mapping[str, Any], snapshot_id: int) -> list[IngestionRecord]:
    """The ingestions in the summary of a snapshot."""
    return read_ingestions(summary.get(INGEST_PROPERTY, "[]"), snapshot_id)


def _keeps_rows(commit: Commit) -> bool:
    return commit.leaves_rows or INGEST_PROPERTY in commit.summary


def _was_read_so(done: list[IngestionRecord], wanted: IngestionRecord) -> bool:
    """Whether the rows of a date are those of a file, perhaps with replayed ones, and what is rejected now was rejected
    by the rules that count now."""
    file, *replays = done
    is_file = (file.mode, file.content_hash) == ("restate", wanted.content_hash)
    return (
        is_file
        and all(one.mode == "replay" and converts_alike(one.dataset_hash, wanted.dataset_hash) for one in replays)
        and converts_alike(file.dataset_hash, wanted.dataset_hash)
        and done[-1].dataset_hash == wanted.dataset_hash
    )


def _content(one: IngestionRecord) -> tuple[str, ...]:
    return one.ingest_date, one.content_hash, one.dataset_hash, one.mode
