"""The change of a result as a few rows with weights, computed in this process. Pure, but for the reading of rows."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from service.engine.jobs.dynamic.direct.conditions import NeedsSpark
from service.engine.jobs.dynamic.direct.groups import changed_groups
from service.engine.jobs.dynamic.direct.rows import delta_rows, netted
from service.engine.jobs.dynamic.job import RefreshJob, RefreshSource
from service.engine.session.rows import plain_columns
from service.model.dynamic.direct import AddedGroups, DirectChange, DirectRows
from service.model.dynamic.plan import WEIGHT

# A change of more rows is written by Spark.
_MOST_ROWS = 1_000_000


def direct_net(job: RefreshJob, change: DirectChange, stored: pa.Table | None) -> tuple[pa.Table, int | None] | None:
    """The rows that come and go, with their weights, and how many keys have changed if there are keys; None if Spark
    has to compute them. `stored` has all rows of the result, if they are few."""
    try:
        if isinstance(change, AddedGroups):
            return _groups(job, change, stored)
        net = _rows(job, change)
    except (NeedsSpark, pa.ArrowException):
        return None
    many = (pc.sum(pc.abs(net[WEIGHT])).as_py() or 0) > _MOST_ROWS
    return None if many else (net, None)


def _rows(job: RefreshJob, change: DirectRows) -> pa.Table:
    rows = delta_rows(_by_number(job), change)
    names, plain = list(job.schema.names), plain_columns(job.schema)
    if any(rows.schema.field(one.name).type != one.type for one in plain):
        raise NeedsSpark
    rows = rows.select([*names, WEIGHT])
    went = pc.any(pc.less(rows[WEIGHT], 0)).as_py()
    return netted(rows, names) if went else rows


def _groups(job: RefreshJob, change: AddedGroups, stored: pa.Table | None) -> tuple[pa.Table, int]:
    rows = delta_rows(_by_number(job), change.rows)
    if stored is None:
        stored = _stored(job, change, rows)
    return changed_groups(rows, change, stored, job.schema)


def _stored(job: RefreshJob, change: AddedGroups, rows: pa.Table) -> pa.Table:
    """The rows of the result with one of the changed values of the key that has the most of them."""
    if not change.keys or job.stored is None:
        raise NeedsSpark
    key = max(change.keys, key=lambda name: pc.count_distinct(rows[name]).as_py())
    found = job.stored.having(change.column_of(key), pc.unique(rows[key]))
    if found is None:
        raise NeedsSpark
    return found


def _by_number(job: RefreshJob) -> Mapping[int, RefreshSource]:
    return {source.number: source for source in job.sources}
