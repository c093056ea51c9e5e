"""What a handler receives beside its request."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from service import VERSION
from service.bulk.bulk import Bulk
from service.catalog.tables import Catalog
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.commits.holds import Holds, awaited
from service.edits.backups import Backups
from service.edits.edits import Edits
from service.edits.restore import Restores
from service.edits.retention import UndoStates
from service.edits.undo import Undos
from service.engine.engine import Engine
from service.history.diff import Differences
from service.history.rollback import Rollbacks
from service.jobs.background import Background
from service.jobs.jobs import Jobs
from service.ledger.compactions import CompactionNotes
from service.ledger.jobs import JobNotes
from service.ledger.ledger import Ledger
from service.ledger.repartitions import RepartitionNotes
from service.ledger.schedules import ScheduleNotes
from service.ledger.undos import UndoNotes
from service.ledger.writers import Writers
from service.metrics.metrics import Metrics
from service.names import TableName
from service.settings import Settings
from service.streams.caller import Caller
from service.streams.streams import Streams
from service.upkeep.advice import Adviser
from service.upkeep.auto import Auto
from service.upkeep.compaction import Call, Compactions
from service.upkeep.counts import WriteCounts
from service.upkeep.elsewhere import built_on_elsewhere
from service.upkeep.estimate import Estimates
from service.upkeep.expirer import Expirer
from service.upkeep.expiry import Expiry
from service.upkeep.orphans import Orphans
from service.upkeep.query_log import QueryLog
from service.upkeep.repartition import Repartitions
from service.upkeep.report import Wish
from service.upkeep.scheduler import Scheduler, now_ms
from service.upkeep.schedules import Schedules, held_off, tables_of
from service.upkeep.upkeep import Upkeep
from service.writes.writes import Writes

# So many WRITEs waiting, or fewer sessions that are not lent: upkeep of our own making waits.
_MANY_WRITES, _SPARE_SESSIONS = 100, 2


@dataclass(frozen=True)
class Context:
    """The service's parts, and what is known of this request beside what it says."""

    settings: Settings
    engine: Engine
    catalog: Catalog
    ledger: Ledger
    commits: Commits
    writes: Writes
    edits: Edits
    backups: Backups
    restores: Restores
    differences: Differences
    rollbacks: Rollbacks
    undos: Undos
    upkeep: Upkeep
    compactions: Compactions
    repartitions: Repartitions
    estimates: Estimates
    orphans: Orphans
    writers: Writers
    bulk: Bulk
    jobs: Jobs
    background: Background
    compaction_notes: CompactionNotes
    holds: Holds
    expiry: Expiry
    streams: Streams
    metrics: Metrics
    schedules: Schedules
    queries: QueryLog
    adviser: Adviser
    auto: Auto
    caller: Caller = field(default_factory=Caller)
    ask: Ask = field(default_factory=lambda: Ask(""))
    size: int = 0
    """About how many bytes the request has."""
    reply: Callable[[Any], bytes] = lambda result: b""
    """The body that answers this request with a result, for a handler that answers later."""


def compose(settings: Settings, engine: Engine, catalog: Catalog, ledger: Ledger) -> Context:
    """The parts, put together."""
    metrics = Metrics(settings.metrics.tables)
    commits = Commits(catalog, ledger, metrics=metrics)
    holds = Holds()
    writers = Writers(ledger)
    keepers = (holds.keeps, partial(awaited, ledger), partial(built_on_elsewhere, writers))
    edits = settings.iceberg.edits
    expirer = Expirer(settings.iceberg.snapshots, engine, catalog, commits, keepers, UndoStates(edits).keeps)
    expiry = Expiry(expirer.by_policy)
    commits.when_committed(expiry.after_commit)
    upkeep = Upkeep(settings.iceberg, catalog, WriteCounts(ledger), metrics)
    notes = CompactionNotes(ledger)
    # Other instances, and whoever else a shared catalog serves, cannot be seen from here.
    orphans = Orphans(engine, catalog, commits, ledger, writers, alone=settings.catalog.type == "sqlite")
    jobs = Jobs(JobNotes(ledger), commits, metrics)
    bulk = Bulk(settings.limits, engine, catalog, commits, upkeep, writers)
    _watch(metrics, engine, bulk)
    writes = Writes(settings, engine, catalog, commits, upkeep, metrics)
    queries = QueryLog()
    adviser = Adviser(settings.iceberg, catalog, notes, queries, metrics)
    compactions = Compactions(
        engine, catalog, commits, upkeep, holds, expirer, notes, writers, metrics, predict=adviser.predict
    )
    compact, is_busy = partial(_compacted, catalog, compactions), partial(_is_busy, engine, writes)
    every_s = settings.iceberg.compaction.auto_every_s
    auto = Auto(catalog, adviser, queries, notes, compact, is_busy, every_s=every_s)
    commits.when_committed(auto.changed)
    backups = Backups(edits, catalog, commits)
    repartitions = Repartitions(engine, catalog, commits, upkeep, holds, backups, RepartitionNotes(ledger), writers)
    restores = Restores(engine, commits, holds)
    return Context(
        settings,
        engine,
        catalog,
        ledger,
        commits,
        writes=writes,
        edits=Edits(engine, commits, holds),
        backups=backups,
        restores=restores,
        rollbacks=Rollbacks(restores, holds),
        differences=Differences(engine, catalog, holds),
        undos=Undos(edits, engine, commits, UndoNotes(ledger), holds),
        upkeep=upkeep,
        compactions=compactions,
        repartitions=repartitions,
        estimates=Estimates(engine, upkeep, holds),
        orphans=orphans,
        writers=writers,
        bulk=bulk,
        jobs=jobs,
        compaction_notes=notes,
        background=Background(jobs, settings.limits.upkeep_threads),
        holds=holds,
        expiry=expiry,
        streams=Streams(settings.limits, engine, holds, metrics),
        metrics=metrics,
        schedules=_schedules(settings, catalog, ledger, metrics),
        queries=queries,
        adviser=adviser,
        auto=auto,
    )


def _compacted(catalog: Catalog, compactions: Compactions, name: TableName, *, asked_by: str) -> bool:
    """Compact a table that nobody asked to; whether any files were merged."""
    call = Call(Ask(f"{asked_by}-{uuid.uuid4().hex}", asked_by=asked_by))
    return compactions.compact(catalog.load(name), Wish(), call).compacted


def _is_busy(engine: Engine, writes: Writes) -> bool:
    """Whether users would wait for a compaction that could as well come later."""
    return engine.idle < _SPARE_SESSIONS or writes.waiting > _MANY_WRITES


def _schedules(settings: Settings, catalog: Catalog, ledger: Ledger, metrics: Metrics) -> Schedules:
    notes = ScheduleNotes(ledger)
    windows = held_off(catalog, settings.iceberg.compaction, now_ms)
    return Schedules(notes, catalog, Scheduler(notes, tables_of(catalog), windows, metrics=metrics))


def _watch(metrics: Metrics, engine: Engine, bulk: Bulk) -> None:
    """How parts that know nothing of metrics are read."""
    metrics.read("firn_build_info", lambda: {(VERSION,): 1})
    metrics.read("firn_engine_up", lambda: engine.up)
    metrics.read("firn_engine_starts_total", lambda: engine.starts)
    metrics.read("firn_spark_sessions", lambda: {("idle",): engine.idle, ("lent",): engine.lent})
    metrics.read("firn_bulk_loads", lambda: bulk.under_way)
