"""What a handler receives beside its request."""

from dataclasses import dataclass

from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.edits.edits import Edits
from service.engine.engine import Engine
from service.ledger.ledger import Ledger
from service.settings import Settings
from service.upkeep.upkeep import Upkeep
from service.writes.writes import Writes


@dataclass(frozen=True)
class Context:
    """The service's parts, and which request this is."""

    settings: Settings
    engine: Engine
    catalog: Catalog
    ledger: Ledger
    commits: Commits
    writes: Writes
    edits: Edits
    upkeep: Upkeep
    request_id: str = ""


def compose(settings: Settings, engine: Engine, catalog: Catalog, ledger: Ledger) -> Context:
    """The parts, put together."""
    commits = Commits(catalog, ledger)
    return Context(
        settings,
        engine,
        catalog,
        ledger,
        commits,
        writes=Writes(engine, catalog, commits),
        edits=Edits(engine, commits),
        upkeep=Upkeep(settings.iceberg, engine, catalog, ledger, commits),
    )
