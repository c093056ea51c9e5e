"""The parts of the service that ingest files."""

from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.engine.session.engine import Engine
from service.guard.policies import Policies
from service.ingest.changes.changes import TableFileChanges
from service.ingest.changes.trigger import Triggers
from service.ingest.exports.exports import Exports
from service.ingest.history import IngestHistory
from service.ingest.ingests import Ingests
from service.ingest.periods.merges import PeriodMerges
from service.ingest.periods.status import IngestionStatuses
from service.ingest.publish import IngestParts
from service.ingest.quarantine import Quarantines
from service.ingest.sources.roots import Roots
from service.ingest.sources.uploads import Uploads
from service.ingest.tasks.accept import DriftAcceptance
from service.ingest.tasks.backfill import Backfills
from service.ingest.tasks.replay import Replays
from service.ingest.tasks.watch import watcher
from service.jobs.jobs import Jobs
from service.jobs.schedules.schedules import Schedules
from service.ledger.exports import ExportRecords
from service.ledger.ingestions import IngestionRecords
from service.ledger.ledger import Ledger
from service.settings import Settings


def open_roots(settings: Settings) -> Roots:
    """The places that requests may name. If senders are authenticated, none by default, and never Firn's own."""
    if not settings.authenticates:
        return Roots(settings.ingest.allowed_roots)
    own = (str(settings.home), *filter(None, [settings.catalog.warehouse]))
    return Roots(settings.ingest.allowed_roots, own, closed=True)


def ingest_parts(
    settings: Settings,
    engine: Engine,
    catalog: Catalog,
    ledger: Ledger,
    commits: Commits,
    jobs: Jobs,
    holds: SnapshotHolds,
    schedules: Schedules,
) -> tuple[object, ...]:
    spool = settings.home / "spool"
    quarantines, history = Quarantines(settings.iceberg, catalog, commits), IngestHistory(IngestionRecords(ledger))
    roots = open_roots(settings)
    exports = Exports(engine, catalog, Policies(catalog), holds, history, ExportRecords(ledger), roots)
    ingests = Ingests(IngestParts(engine, catalog, commits, jobs, history, quarantines, exports, spool))
    uploads = Uploads(spool, settings.limits.bulk_mb)
    merges, triggers = PeriodMerges(history, exports), Triggers(schedules)
    changes = TableFileChanges(catalog, commits, history, exports, triggers)
    status = IngestionStatuses(settings.iceberg, jobs.records, history)
    backfills = Backfills(ingests, roots)
    watches = watcher(catalog, history, jobs.records, backfills, settings.ingest.watch_interval_s)
    tasks = (backfills, watches, DriftAcceptance(ingests.parts), Replays(ingests.parts))
    return roots, uploads, quarantines, history, exports, ingests, merges, triggers, changes, status, *tasks
