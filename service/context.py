"""What a handler receives beside its request."""

from dataclasses import dataclass

from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.engine.engine import Engine
from service.ledger.ledger import Ledger
from service.settings import Settings


@dataclass(frozen=True)
class Context:
    """The service's parts, and which request this is."""

    settings: Settings
    engine: Engine
    catalog: Catalog
    ledger: Ledger
    commits: Commits
    request_id: str = ""
