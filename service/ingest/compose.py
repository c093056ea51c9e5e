"""The parts of the service that ingest files."""

from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.engine.session.engine import Engine
from service.ingest.history import IngestHistory
from service.ingest.ingests import Ingests
from service.ingest.publish import IngestParts
from service.ingest.quarantine import Quarantines
from service.ingest.sources.roots import Roots
from service.ingest.sources.uploads import Uploads
from service.ingest.tasks.accept import DriftAcceptance
from service.ingest.tasks.backfill import Backfills
from service.ingest.tasks.replay import Replays
from service.jobs.jobs import Jobs
from service.ledger.ingestions import IngestionRecords
from service.ledger.ledger import Ledger
from service.settings import Settings


def ingest_parts(
    settings: Settings, engine: Engine, catalog: Catalog, ledger: Ledger, commits: Commits, jobs: Jobs
) -> tuple[object, ...]:
    spool = settings.home / "spool"
    quarantines, history = Quarantines(settings.iceberg, catalog, commits), IngestHistory(IngestionRecords(ledger))
    ingests = Ingests(IngestParts(engine, catalog, commits, jobs, history, quarantines, spool))
    uploads, roots = Uploads(spool, settings.limits.bulk_mb), Roots(settings.ingest.allowed_roots)
    return (
        roots,
        uploads,
        quarantines,
        history,
        ingests,
        Backfills(ingests, roots),
        DriftAcceptance(ingests.parts),
        Replays(ingests.parts),
    )
