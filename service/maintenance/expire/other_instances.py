"""The snapshots that jobs of other instances may build on."""

from service.catalog.history import history
from service.catalog.tables import Table
from service.jobs.jobs import Jobs
from service.maintenance.orphans.orphans import SLACK_MS


def built_on_elsewhere(jobs: Jobs, table: Table) -> dict[int, str]:
    """Every snapshot since the one that the first of these jobs started from; none if this is the only instance."""
    if not jobs.records.shared:
        return {}
    started = [job.started_ms or 0 for job in jobs.writing(table.uuid) if job.owner != jobs.records.me]
    if not started:
        return {}
    since = min(started) - SLACK_MS
    versions = history(table).versions
    before = sum(version.timestamp_ms < since for version in versions)
    reason = "a bulk load or a compaction of another instance builds on it"
    return {version.snapshot_id: reason for version in versions[max(0, before - 1) :]}
