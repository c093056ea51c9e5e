"""The small-file check that every Nth WRITE makes, from metadata alone."""

from dataclasses import dataclass

from service.catalog.files import list_files
from service.catalog.tables import Table
from service.context import Context
from service.properties import compaction_policy, target_file_size_mb
from service.upkeep.plan import plan, small_bytes


@dataclass(frozen=True)
class Check:
    """What the check found; `small_files_count` is None where it was not this write's turn."""

    compaction_recommended: bool
    small_files_count: int | None


NOT_CHECKED = Check(False, None)


def check_after_write(context: Context, table: Table) -> Check:
    """Count this WRITE of the table, and its small files if it is the Nth."""
    iceberg = context.settings.iceberg
    policy = compaction_policy(table.properties, iceberg.compaction)
    writes = context.ledger.count_write(table.uuid)
    if not policy.enabled or writes % policy.opportunistic_check_interval:
        return NOT_CHECKED
    threshold = small_bytes(policy, target_file_size_mb(table.properties, iceberg))
    found = plan(list_files(table).data, threshold, policy.min_files_to_compact)
    return Check(bool(found.worth_merging), len(found.small))
