"""The one composition over fakes: the parts of a service, put together as for a real one, without Spark."""

from pathlib import Path
from typing import Any, Self

from service.app import compose
from service.commits.commit import Commits
from service.ledger.ledger import Ledger
from service.metrics.metrics import Metrics
from service.operations.operation import Parts
from service.settings import Settings
from tests.fakes import FakeCatalog, FakeEngine, FakeOwners, MuteLedger


class Composed:
    """One process's parts, over a ledger in a file, a catalog and an engine. Tests take from `parts` what they look at.

    The catalog keeps tables in memory and the engine commits rows to them, unless the test brings others: PyIceberg's
    catalog, say, and an engine that does the one job the test is about.
    """

    def __init__(
        self,
        ledger_file: Path,
        *,
        catalog: Any = None,
        engine: Any = None,
        owners: FakeOwners | None = None,
        settings: Settings | None = None,
        ledger_url: str | None = None,
    ) -> None:
        self.ledger_file = ledger_file
        self.catalog: Any = FakeCatalog() if catalog is None else catalog
        self.engine: Any = FakeEngine(self.catalog) if engine is None else engine
        self._given_engine = engine
        self.settings = settings or Settings()
        self.ledger: Any = Ledger(ledger_url) if ledger_url else MuteLedger(f"sqlite:///{ledger_file}")
        if owners is not None:
            self.ledger.owners = owners
        self.parts: Parts = compose(self.settings, self.engine, self.catalog, self.ledger)
        self.commits = self.parts[Commits]
        self.commits.batches._pauses_s = (0, 0)  # retries are immediate
        self.commits._listeners.clear()  # no maintenance in the background
        self.metrics = self.parts[Metrics]

    def restarted(self, owners: FakeOwners | None = None) -> Self:
        """The next process after this one has crashed; with `owners`, another instance beside it."""
        return type(self)(
            self.ledger_file, catalog=self.catalog, engine=self._given_engine, owners=owners, settings=self.settings
        )
