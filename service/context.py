"""What a handler receives beside its request."""

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
from service.ledger.jobs import JobNotes
from service.ledger.ledger import Ledger
from service.ledger.schedules import ScheduleNotes
from service.settings import Settings
from service.streams.caller import Caller
from service.streams.streams import Streams
from service.upkeep.counts import WriteCounts
from service.upkeep.expirer import Expirer
from service.upkeep.expiry import Expiry
from service.upkeep.scheduler import Scheduler, now_ms
from service.upkeep.schedules import Schedules, held_off, tables_of
from service.upkeep.upkeep import Upkeep
from service.writes.writes import Writes


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
    schedules: Schedules
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
    return Context(
        settings,
        engine,
        catalog,
        ledger,
        commits,
        writes=Writes(settings, engine, catalog, commits, upkeep),
        edits=Edits(engine, commits),
        upkeep=upkeep,
        bulk=Bulk(settings.limits, engine, catalog, commits, upkeep),
        jobs=Jobs(JobNotes(ledger), commits),
        holds=holds,
        expiry=expiry,
        streams=Streams(settings.limits, engine, holds),
        schedules=_schedules(settings, catalog, ledger),
    )


def _schedules(settings: Settings, catalog: Catalog, ledger: Ledger) -> Schedules:
    notes = ScheduleNotes(ledger)
    windows = held_off(catalog, settings.iceberg.compaction, now_ms)
    return Schedules(notes, catalog, Scheduler(notes, tables_of(catalog), windows))
