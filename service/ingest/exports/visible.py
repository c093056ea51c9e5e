"""Exports for senders from whom a policy hides a part of the table: in folders of their own, with what they may see.

The rows come through the same relation as those of QUERY, so a policy has one meaning. The table's own files, which
hold all of it, are neither read nor replaced.
"""

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial

from service.catalog.files.export import ArrowRows
from service.catalog.tables import Table
from service.engine.jobs.stream import select_visible
from service.engine.session.engine import Engine
from service.ingest.exports.folders import SENDERS
from service.model.call import Call
from service.model.filters.predicates import And, Compare
from service.model.identity.principal import Principal
from service.model.ingest.reserved import DATE_FIELD, PERIOD_FIELD
from service.model.schema.columns import Column

_TYPES = {one.name: one.type for one in (DATE_FIELD, PERIOD_FIELD)}
_BATCH_ROWS = 8192


def folder_of(principal: Principal) -> str:
    """The folder of a sender's files, in that of the table. It has one for each name, whatever characters that has."""
    readable = re.sub(r"[^A-Za-z0-9_.@-]+", "_", principal.name)[:60]
    return f"{SENDERS}/{readable}-{hashlib.sha256(principal.name.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class VisibleRows:
    """Reads what a call's sender sees of a table."""

    engine: Engine
    call: Call

    @contextmanager
    def read(self, table: Table, snapshot_id: int, values: Mapping[str, str | date]) -> Iterator[ArrowRows]:
        """The visible rows with these values of the columns that Firn adds."""
        assert table.view is not None
        tag = f"firn-export-{uuid.uuid4().hex}"
        among = And(tuple(Compare(Column(name, (name,), _TYPES[name]), "eq", value) for name, value in values.items()))
        # Reading it by its id would show the columns of then.
        snapshot = snapshot_id if table.head_has_table_schema else None
        with self.call.cancelling(partial(self.engine.cancel, tag)):
            batches = self.engine.run_for(
                self.call, select_visible, table.spark_name, snapshot, among, table.view, _BATCH_ROWS, tag
            )
            with closing(batches):
                yield batches
