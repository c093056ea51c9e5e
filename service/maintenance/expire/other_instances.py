"""Snapshots that jobs of other instances build on."""

from service.catalog.history import history
from service.catalog.tables import Table
from service.jobs.jobs import Jobs
from service.maintenance.orphans.orphans import SLACK_MS

BUILT_ON_ELSEWHERE = "a bulk load or a compaction of another instance builds on it"


def built_on_elsewhere(jobs: Jobs, table: Table) -> dict[int, str]:
    """Every snapshot since the one that the first of them found; nothing where this is the only instance."""
    if not jobs.records.shared:
        return {}
    begun = [job.started_ms or 0 for job in jobs.writing(table.uuid) if job.owner != jobs.records.me]
    if not begun:
        return {}
    since = min(begun) - SLACK_MS
    versions = history(table).versions
    found = sum(version.timestamp_ms < since for version in versions)
    return {version.snapshot_id: BUILT_ON_ELSEWHERE for version in versions[max(0, found - 1) :]}
