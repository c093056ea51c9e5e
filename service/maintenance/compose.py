"""Automatic compaction, put together: what it runs, and when it waits."""

import uuid
from collections.abc import Callable

from service.catalog.tables import Catalog
from service.engine.session.engine import Engine
from service.ledger.jobs import JobRecords
from service.maintenance.advise.advice import Adviser
from service.maintenance.advise.auto import Auto
from service.maintenance.advise.query_log import QueryLog
from service.maintenance.compact.compaction import Compactions
from service.maintenance.compact.report import CompactionOptions
from service.model.call import Call
from service.model.names import TableName

# It waits while fewer sessions are idle or more WRITEs wait.
_SPARE_SESSIONS, _MANY_WRITES = 2, 100


def automatic_compaction(
    engine: Engine,
    catalog: Catalog,
    adviser: Adviser,
    query_log: QueryLog,
    records: JobRecords,
    compactions: Compactions,
    waiting_writes: Callable[[], int],
    every_s: float,
) -> Auto:
    def compact(table: TableName) -> bool:
        call = Call(f"auto-{uuid.uuid4().hex}", requested_by="auto")
        return compactions.compact(catalog.load(table), CompactionOptions(last_deletes=False), call).compacted

    def is_busy() -> bool:
        """Whether a compaction would delay requests."""
        return engine.idle < _SPARE_SESSIONS or waiting_writes() > _MANY_WRITES

    return Auto(catalog, adviser, query_log, records, compact, is_busy, every_s=every_s)
