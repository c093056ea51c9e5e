"""What a handler receives beside its request."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from service.bulk.bulk import Bulk
from service.catalog.tables import Catalog
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.commits.holds import Holds, awaited
from service.edits.edits import Edits
from service.engine.engine import Engine
from service.jobs.jobs import Jobs
from service.ledger.compactions import CompactionNotes
from service.ledger.jobs import JobNotes
from service.ledger.ledger import Ledger
from service.names import TableName
from service.settings import Settings
from service.streams.caller import Caller
from service.streams.streams import Streams
from service.upkeep.advice import Adviser
from service.upkeep.auto import Auto
from service.upkeep.counts import WriteCounts
from service.upkeep.expirer import Expirer
from service.upkeep.expiry import Expiry
from service.upkeep.query_log import QueryLog
from service.upkeep.report import Wish
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
    upkeep: Upkeep
    bulk: Bulk
    jobs: Jobs
    holds: Holds
    expiry: Expiry
    streams: Streams
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
    commits = Commits(catalog, ledger)
    holds = Holds()
    keepers = (holds.keeps, partial(awaited, ledger))
    expirer = Expirer(settings.iceberg.snapshots, engine, catalog, commits, keepers)
    expiry = Expiry(expirer.by_policy)
    commits.when_committed(expiry.after_commit)
    upkeep = Upkeep(settings.iceberg, engine, catalog, commits, WriteCounts(ledger), holds, expirer)
    writes = Writes(settings, engine, catalog, commits, upkeep)
    queries, notes = QueryLog(), CompactionNotes(ledger)
    adviser = Adviser(settings.iceberg, catalog, notes, queries)
    auto = Auto(
        catalog, adviser, queries, notes, partial(_compacted, catalog, upkeep), partial(_is_busy, engine, writes)
    )
    commits.when_committed(auto.changed)
    return Context(
        settings,
        engine,
        catalog,
        ledger,
        commits,
        writes=writes,
        edits=Edits(engine, commits),
        upkeep=upkeep,
        bulk=Bulk(settings.limits, engine, catalog, commits, upkeep),
        jobs=Jobs(JobNotes(ledger), commits),
        holds=holds,
        expiry=expiry,
        streams=Streams(settings.limits, engine, holds),
        queries=queries,
        adviser=adviser,
        auto=auto,
    )


def _compacted(catalog: Catalog, upkeep: Upkeep, name: TableName, *, asked_by: str, predicted: dict[str, Any]) -> bool:
    """Compact a table that nobody asked to; whether any files were merged."""
    table = catalog.load(name)
    wish = Wish(snapshot_retention_hours=upkeep.policy(table).snapshot_retention_hours)
    return upkeep.compact(table, wish, Ask(f"{asked_by}-{uuid.uuid4().hex}")).compacted


def _is_busy(engine: Engine, writes: Writes) -> bool:
    """Whether users would wait for a compaction that could as well come later."""
    return engine.spare < _SPARE_SESSIONS or writes.waiting > _MANY_WRITES
