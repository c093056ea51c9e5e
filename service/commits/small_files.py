"""The check after a WRITE that notices small files, and the policy by which a table is kept."""

import logging
from dataclasses import dataclass, field

from service.catalog.files.data_files import list_files
from service.catalog.files.small import find_small_files, small_bytes
from service.catalog.tables import Catalog, Table
from service.commits.write_counts import WriteCounts
from service.metrics.metrics import Metrics
from service.model.properties import CompactionPolicy, compaction_policy, target_file_size_mb
from service.settings import IcebergSettings

log = logging.getLogger("firn.maintenance")


@dataclass(frozen=True)
class SmallFileCheck:
    """What the check after a WRITE found; `small_files_count` is None where it was not this write's turn."""

    compaction_recommended: bool
    small_files_count: int | None


NOT_CHECKED = SmallFileCheck(False, None)


@dataclass(frozen=True)
class SmallFileChecks:
    """Knows how each table is to be kept, and counts what would be worth merging, from metadata."""

    settings: IcebergSettings
    catalog: Catalog
    counts: WriteCounts
    metrics: Metrics = field(default_factory=Metrics)

    def policy(self, table: Table) -> CompactionPolicy:
        """The compaction settings that hold for a table."""
        return compaction_policy(table.properties, self.settings.compaction)

    def small_bytes(self, table: Table) -> int:
        """Below what size a file of this table counts as small."""
        return small_bytes(self.policy(table), target_file_size_mb(table.properties, self.settings))

    def tell(self, table: Table, snapshot_id: int | None = None) -> None:
        """Tell metrics what small files a table has, by its own measure, at its current or the named snapshot."""
        policy = self.policy(table)
        found = find_small_files(
            list_files(table, snapshot_id).data, self.small_bytes(table), policy.min_files_to_compact
        )
        recommended = policy.active and bool(found.worth_merging)
        self.metrics.looked_at(table.name, len(found.small), recommended=recommended)

    def check_after_write(self, table: Table) -> SmallFileCheck:
        """Count a WRITE of the table that was committed alone, and its small files if it is the Nth."""
        checks = self.check_batch(table, 1)
        self.counts.keep(table.uuid, 1)
        return checks.get(0, NOT_CHECKED)

    def check_batch(self, table: Table, writes: int) -> dict[int, SmallFileCheck]:
        """Count WRITEs that share a commit: what those found that are the Nth of the table.

        It never fails the writes before it. The caller keeps the count.
        """
        total = self.counts.add(table.uuid, writes)
        try:
            policy = self.policy(table)
            interval = policy.opportunistic_check_interval
            due = [i for i in range(writes) if (total - writes + i + 1) % interval == 0] if policy.active else []
            if not due:
                return {}
            now = self.catalog.load(table.name)
            found = find_small_files(list_files(now).data, self.small_bytes(now), policy.min_files_to_compact)
            check = SmallFileCheck(bool(found.worth_merging), len(found.small))
            self.metrics.checked(table.name, len(found.small))
            if check.compaction_recommended:
                self.metrics.recommended(table.name)
            return dict.fromkeys(due, check)
        except Exception:
            log.exception("the small files of %s could not be counted", table.name)
            return {}
