"""The parts of the service that are about dynamic tables."""

from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.dynamic.compiling import Compiler
from service.dynamic.declare.creation import Creations
from service.dynamic.definitions import Definitions
from service.dynamic.freshness import Freshness
from service.dynamic.kept import NeededByDynamicTables
from service.dynamic.reads import DynamicReads
from service.dynamic.refresh.audit import Audits
from service.dynamic.refresh.computation import Committer
from service.dynamic.refresh.failures import Failures
from service.dynamic.refresh.passes import Passes
from service.dynamic.refresh.refresher import Refresher
from service.dynamic.rights import Creators
from service.dynamic.worker import DynamicWorker, WorkerOptions
from service.engine.queries.engine import QueryEngine
from service.engine.session.engine import Engine
from service.guard.costs.limits import QueryLimits
from service.identity.identities import Identities
from service.jobs.jobs import Jobs
from service.ledger.dynamic_cursors import CursorRecords
from service.ledger.dynamic_tables import DynamicTableRecords
from service.ledger.ledger import Ledger
from service.metrics.metrics import Metrics
from service.model.dynamic.definition import DynamicSource
from service.model.identity.principal import Principal
from service.settings import Settings


def needed_snapshots(settings: Settings, ledger: Ledger) -> NeededByDynamicTables:
    """Keeps the snapshots that dynamic tables need from expiring."""
    return NeededByDynamicTables(CursorRecords(ledger), settings.dynamic.keep_snapshots_hours)


def dynamic_parts(
    settings: Settings,
    engine: Engine,
    queries: QueryEngine,
    catalog: Catalog,
    ledger: Ledger,
    commits: Commits,
    jobs: Jobs,
    holds: SnapshotHolds,
    metrics: Metrics,
    identities: Identities,
) -> tuple[object, ...]:
    records, cursors, how = DynamicTableRecords(ledger), CursorRecords(ledger), settings.dynamic
    definitions = Definitions(catalog, records)
    compiler = Compiler(queries, catalog, QueryLimits.of(settings.queries), definitions.policies)
    committer = Committer(engine, commits, jobs, holds, settings.iceberg.edits)
    refresher = Refresher(committer, definitions, cursors, compiler, metrics)

    def check_may_publish(creator: Principal, source: DynamicSource) -> None:
        definitions.policies.check_may_publish(creator, commits.find(source.name, source.uuid), "query")

    creators = Creators(identities.of_owner, check_may_publish)
    passes = Passes(definitions, commits, holds, refresher, Failures(records), how.parallelism, creators)
    creations = Creations(settings.iceberg, catalog, commits, definitions, compiler, passes)
    freshness = Freshness(lambda source: commits.find(source.name, source.uuid))
    options = WorkerOptions(how.worker, how.interval_s, how.parallelism, how.tables)
    worker = DynamicWorker(records, cursors, freshness, passes.refresh, options, metrics)
    reads = DynamicReads(definitions, cursors, freshness)
    return definitions, compiler, refresher, passes, creations, Audits(refresher, creators), reads, worker
