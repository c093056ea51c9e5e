"""Rows that a change takes out of a table although only a REPLAY had them: they left the quarantine before."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from service.catalog.lineage import ancestors, lineage
from service.catalog.tables import Table
from service.ledger.ingestions import IngestionRecord, IngestionRecords, read_ingestions
from service.model.ingest.reserved import INGEST_PROPERTY, is_ingestion_table

_MOST_NAMED = 20


@dataclass(frozen=True)
class ReplayedRows:
    """Finds the replays that a change undoes, and says how to get their rows back."""

    records: IngestionRecords

    def lost_by_return(self, table: Table, to_id: int, from_id: int | None) -> list[str]:
        """The warnings of a change that gives a table the rows of an earlier snapshot again."""
        if not is_ingestion_table(table.properties):
            return []
        there = {one.snapshot_id: one.timestamp_ms for one in table.snapshots()}
        if to_id not in there:  # expired, after an earlier attempt with the same key
            return []
        kept, since_ms, current = ancestors(table, to_id), there[to_id], ancestors(table)
        found: dict[str, list[IngestionRecord]] = {}
        for one in self._ingestions(table):
            if one.mode == "restate":  # what was replayed before was replaced by it, not by this change
                found[one.ingest_date] = []
            if one.snapshot_id in there:
                is_lost = one.snapshot_id in current and one.snapshot_id not in kept
            else:
                is_lost = one.ended_ms >= since_ms
            if one.mode == "replay" and is_lost:
                found.setdefault(one.ingest_date, []).append(one)
        back = None if from_id is None else f"ROLLBACK to snapshot {from_id}"
        return _warnings([one for replays in found.values() for one in replays], back)

    def lost_by_undo(self, table: Table, snapshot_ids: Collection[int | None], back: str | None) -> list[str]:
        """The warnings of a change that undoes the changes which made some snapshots."""
        if not is_ingestion_table(table.properties):
            return []
        done = self._ingestions(table)
        return _warnings([one for one in done if one.mode == "replay" and one.snapshot_id in snapshot_ids], back)

    def _ingestions(self, table: Table) -> list[IngestionRecord]:
        """The files that were ingested, oldest first, also those that only the table knows."""
        found = self.records.done(table.uuid)
        known = {one.snapshot_id for one in found}
        for commit in lineage(table):
            if INGEST_PROPERTY in commit.summary and commit.snapshot_id not in known:
                found += read_ingestions(commit.summary[INGEST_PROPERTY], commit.snapshot_id)
        return sorted(found, key=lambda one: one.ended_ms)


def _warnings(lost: Sequence[IngestionRecord], back: str | None) -> list[str]:
    rows = sum(one.records_ingested for one in lost)
    if not rows:
        return []
    named = [f"{one.ingest_date} (run {one.run_id}, file {one.file})" for one in lost[:_MOST_NAMED]]
    if len(lost) > _MOST_NAMED:
        named.append(f"and {len(lost) - _MOST_NAMED} more")
    way_out = "INGEST the files of these dates again" + (f", or send {back}" if back else "")
    return [
        f"{rows} {'row' if rows == 1 else 'rows'} that REPLAY had taken from the quarantine are not in the table any "
        f"more, and do not return to the quarantine: {', '.join(named)}; to get them back, {way_out}"
    ]
