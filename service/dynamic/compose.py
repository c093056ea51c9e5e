"""The parts of the service that are about dynamic tables."""

from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.dynamic.compiling import Compiler
from service.dynamic.computation import Committer
from service.dynamic.creation import Creations
from service.dynamic.definitions import Definitions
from service.dynamic.failures import Failures
from service.dynamic.passes import Passes
from service.dynamic.refresh import Refresher
from service.engine.session.engine import Engine
from service.jobs.jobs import Jobs
from service.ledger.dynamic_cursors import CursorRecords
from service.ledger.dynamic_tables import DynamicTableRecords
from service.ledger.ledger import Ledger
from service.metrics.metrics import Metrics
from service.settings import Settings


def dynamic_parts(
    settings: Settings,
    engine: Engine,
    catalog: Catalog,
    ledger: Ledger,
    commits: Commits,
    jobs: Jobs,
    holds: SnapshotHolds,
    metrics: Metrics,
) -> tuple[object, ...]:
    records = DynamicTableRecords(ledger)
    definitions = Definitions(catalog, records)
    committer = Committer(engine, commits, jobs, holds, settings.iceberg.edits)
    compiler = Compiler(engine, catalog)
    refresher = Refresher(committer, definitions, CursorRecords(ledger), compiler, metrics)
    passes = Passes(definitions, commits, holds, refresher, Failures(records))
    creations = Creations(settings.iceberg, catalog, commits, definitions, compiler, passes)
    return definitions, compiler, refresher, passes, creations
