"""Snapshots that the long work of other instances builds on, as the ledger's notes of who writes tell of it."""

from service.catalog.history import history
from service.catalog.tables import Table
from service.ledger.writers import Writers
from service.upkeep.orphans import SLACK_MS

BUILT_ON_ELSEWHERE = "a bulk load or a compaction of another instance builds on it"


def built_on_elsewhere(writers: Writers, table: Table) -> dict[int, str]:
    """Every snapshot since the one that the first of them found; nothing where this is the only instance."""
    begun = [writer.begun_ms for writer in writers.elsewhere(table.uuid)]
    if not begun:
        return {}
    since = min(begun) - SLACK_MS
    versions = history(table).versions
    found = sum(version.timestamp_ms < since for version in versions)
    return {version.snapshot_id: BUILT_ON_ELSEWHERE for version in versions[max(0, found - 1) :]}
