"""The check after every nth WRITE of a table that notices small files, and the compaction policy of a table."""

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from service.catalog.files.data_files import DataFile, list_files
from service.catalog.files.small import SmallFiles, find_small_files, is_small, small_bytes
from service.catalog.tables import Catalog, Table
from service.errors import LedgerUnavailable
from service.ledger.ledger import Ledger
from service.metrics.metrics import Metrics
from service.model.properties import CompactionPolicy, compaction_policy, target_file_size_mb
from service.settings import IcebergSettings

log = logging.getLogger("firn.maintenance")


@dataclass(frozen=True)
class SmallFileCheck:
    """What the check after a WRITE found; `small_files_count` is None if the WRITE was not an nth one."""

    compaction_recommended: bool
    small_files_count: int | None


NOT_CHECKED = SmallFileCheck(False, None)


class WriteCounts:
    """How many WRITEs each table has had: the ledger's count when it was first read, and those of this process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._totals: dict[str, int] = {}

    def add(self, table_uuid: str, writes: int) -> int:
        """Count more WRITEs; returns the new total, which no other call returns."""
        with self._lock:
            if table_uuid not in self._totals:
                try:
                    self._totals[table_uuid] = self._ledger.writes(table_uuid)
                except LedgerUnavailable:  # a count may start from zero, a WRITE may not fail for it
                    self._totals[table_uuid] = 0
            self._totals[table_uuid] += writes
            return self._totals[table_uuid]

    def keep(self, table_uuid: str, writes: int) -> None:
        """Store more WRITEs in the ledger; if that fails, it is only logged."""
        try:
            self._ledger.count_writes(table_uuid, writes)
        except LedgerUnavailable as e:
            log.error("the writes of table %s could not be counted in the ledger: %s", table_uuid, e.message)


@dataclass(frozen=True)
class SmallFileChecks:
    """Counts the small files that are worth merging, from metadata."""

    settings: IcebergSettings
    catalog: Catalog
    counts: WriteCounts
    metrics: Metrics = field(default_factory=Metrics)

    def policy(self, table: Table) -> CompactionPolicy:
        """A table's compaction settings."""
        return compaction_policy(table.properties, self.settings.compaction)

    def small_bytes(self, table: Table) -> int:
        """The size below which a file of this table is small."""
        return small_bytes(self.policy(table), target_file_size_mb(table.properties, self.settings))

    def count(self, table: Table, files: Iterable[DataFile]) -> int:
        """How many of these files of a table are small."""
        small = self.small_bytes(table)
        return sum(is_small(file, small) for file in files)

    def tell(self, table: Table, snapshot_id: int | None = None) -> None:
        """Report a table's small files to the metrics, at its current or the named snapshot."""
        policy, found = self.policy(table), self._find(table, snapshot_id)
        self.metrics.counted_small_files(
            table.name, len(found.small), recommended=policy.active and bool(found.worth_merging)
        )

    def check_after_write(self, table: Table) -> SmallFileCheck:
        """Count a WRITE that was committed alone, and the table's small files if it is an nth one."""
        checks = self.check_batch(table, 1)
        self.counts.keep(table.uuid, 1)
        return checks.get(0, NOT_CHECKED)

    def check_batch(self, table: Table, writes: int) -> dict[int, SmallFileCheck]:
        """Count WRITEs that share a commit; returns the check of each that is an nth one of the table, by position.

        It never fails: the WRITEs are committed. The caller stores the count in the ledger.
        """
        total = self.counts.add(table.uuid, writes)
        try:
            policy = self.policy(table)
            interval = policy.opportunistic_check_interval
            due = [i for i in range(writes) if (total - writes + i + 1) % interval == 0] if policy.active else []
            if not due:
                return {}
            found = self._find(self.catalog.load(table.name))
            check = SmallFileCheck(bool(found.worth_merging), len(found.small))
            self.metrics.checked(table.name, len(found.small))
            if check.compaction_recommended:
                self.metrics.recommended(table.name)
            return dict.fromkeys(due, check)
        except Exception:
            log.exception("the small files of %s could not be counted", table.name)
            return {}

    def _find(self, table: Table, snapshot_id: int | None = None) -> SmallFiles:
        files, fewest = list_files(table, snapshot_id).data, self.policy(table).min_files_to_compact
        return find_small_files(files, self.small_bytes(table), fewest)
