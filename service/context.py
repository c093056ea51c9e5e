"""What a handler receives beside its request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from service.catalog.tables import Catalog
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.edits.edits import Edits
from service.engine.engine import Engine
from service.ledger.ledger import Ledger
from service.settings import Settings
from service.upkeep.counts import WriteCounts
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
    ask: Ask = field(default_factory=lambda: Ask(""))
    size: int = 0
    """About how many bytes the request has."""
    reply: Callable[[Any], bytes] = lambda result: b""
    """The body that answers this request with a result, for a handler that answers later."""


def compose(settings: Settings, engine: Engine, catalog: Catalog, ledger: Ledger) -> Context:
    """The parts, put together."""
    commits = Commits(catalog, ledger)
    upkeep = Upkeep(settings.iceberg, engine, catalog, commits, WriteCounts(ledger))
    return Context(
        settings,
        engine,
        catalog,
        ledger,
        commits,
        writes=Writes(settings, engine, catalog, commits, upkeep),
        edits=Edits(engine, commits),
        upkeep=upkeep,
    )
