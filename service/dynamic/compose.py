"""The parts of the service that are about dynamic tables."""

from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.dynamic.definitions import Definitions
from service.engine.session.engine import Engine
from service.ledger.dynamic_tables import DynamicTableRecords
from service.ledger.ledger import Ledger
from service.settings import Settings


def dynamic_parts(
    settings: Settings, engine: Engine, catalog: Catalog, ledger: Ledger, commits: Commits
) -> tuple[object, ...]:
    definitions = Definitions(catalog, DynamicTableRecords(ledger))
    return (definitions,)
