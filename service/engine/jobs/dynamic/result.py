"""The result of a refresh: which of its rows go, and which come."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from service.engine.iceberg.swap import CommitTarget
from service.engine.iceberg.tables import pinned_reads
from service.engine.jobs.dynamic import few, statements
from service.engine.jobs.dynamic.direct.net import direct_net
from service.engine.jobs.dynamic.job import RefreshJob
from service.engine.jobs.dynamic.sources import schema_of
from service.engine.jobs.dynamic.views import RefreshViews
from service.engine.jobs.edits.places import FoundPlaces
from service.engine.session.rows import collect
from service.engine.session.spark_types import DataFrame
from service.engine.sql.past import rows_under
from service.errors import RowCountMismatch
from service.model.dynamic.direct import AddedGroups, DirectChange
from service.model.dynamic.plan import RESULT, WEIGHT, ReplacedKeys, WeightedRows
from service.model.names import PLACE_COLUMNS
from service.model.schema.types import Field

_PLACED, _NET, _HELD, _KEYS = "_firn_placed", "_firn_net", "_firn_held", "_firn_keys"
GONE = "_firn_gone"
"""The view of the places of the rows that go, if Spark found them."""
# A change of more rows stays in Spark.
_FEW_ROWS = 20_000


@dataclass(frozen=True)
class NetChange:
    """The rows of the result that come and go."""

    view: str
    held: str
    """The view of the rows among which those that go are, with their places."""
    came: int
    went: int
    most: int
    """How often the most frequent one comes."""
    keys: int | None = None
    few: pa.Table | None = None
    """The rows with their weights, if they are few."""


@dataclass(frozen=True)
class GoingRows:
    """The places of the rows that go, and how many are in each file."""

    hits: Mapping[str, int]
    places: FoundPlaces
    in_view: bool = False
    """Whether they are in the view `GONE`."""


class ResultRows:
    """The stored rows of a result, as views and in this process, and what changes in them."""

    def __init__(self, views: RefreshViews, job: RefreshJob, *, few: bool) -> None:
        self.views = views
        self.job = job
        self.few = few
        """Whether few rows of the sources have changed, so that few of the result are expected to."""
        self._opened = False

    @cached_property
    def rows(self) -> pa.Table | None:
        """All rows, if they are few, with their places. Read when they are needed: not if rows only come."""
        stored = self.job.stored if self.few else None
        return None if stored is None else stored.read(self.job.base.rows)

    def open(self) -> None:
        """Make the view of the rows, and one with their places."""
        if self._opened:
            return
        self._opened = True
        views, fields = self.views, self.job.schema.fields
        columns, places = statements.visible(fields), list(PLACE_COLUMNS)
        if self.rows is not None:
            views.give(_PLACED, self.rows)
        elif self.job.base.snapshot_id is None:
            zeros = ", ".join(f"{zero} AS {name}" for zero, name in zip(("''", "0L"), places, strict=True))
            views.make(_PLACED, f"SELECT *, {zeros} FROM ({statements.no_rows(fields)})")
        else:
            rows = self._stored()
            placed = (
                rows.metadataColumn(column).alias(name) for column, name in zip(("_file", "_pos"), places, strict=True)
            )
            views.make(_PLACED, rows.select("*", *placed).selectExpr(*columns, *places))
        views.make(RESULT, f"SELECT {statements.listing(self.job.schema)} FROM {_PLACED}")

    def _stored(self) -> DataFrame:
        base, session, views = self.job.base, self.views.session, self.views
        assert base.snapshot_id is not None
        if schema_of(session, base.name, base.snapshot_id) == base.schema_id:
            place = (base.name, base.snapshot_id)
            return views.stack.enter_context(pinned_reads(session, [place]))[place].frame
        iceberg = CommitTarget(session, base.name, base.uuid, base.schema_id).load()
        return rows_under(session, iceberg, base.snapshot_id, base.schema_id)

    def net(self, change: WeightedRows | ReplacedKeys) -> NetChange:
        """Add up what changes."""
        schema, held, keys = self.job.schema, _PLACED, None
        if isinstance(change, WeightedRows):
            sides: list[tuple[str, int | str]] = [(f"({statements.typed(change.view, schema, WEIGHT)})", WEIGHT)]
        else:
            self.open()
            by = tuple(schema.field(name) for name in change.columns)
            held, keys = self._held(change, by)
            rows = f"({statements.typed(change.rows, schema)})"
            if not by:  # an aggregate without groups has a row even if there is no key
                rows = f"({statements.with_keys(rows, _KEYS, by)})"
            sides = [(rows, 1), (held, -1)]
        text = statements.net(sides, schema)
        found = self._few_net(text) if self.few else None
        if found is not None:
            return NetChange(_NET, held, *few.totals(found), keys, found)
        self.views.keep(_NET, text)
        came, went, most = (int(n) for n in self.views.session.sql(statements.sums(_NET)).collect()[0])
        return NetChange(_NET, held, came, went, most, keys)

    def _held(self, change: ReplacedKeys, by: tuple[Field, ...]) -> tuple[str, int | None]:
        """The view of the rows with the keys, and how many keys there are, if that costs nothing more."""
        if self.few:
            self.views.make(_KEYS, statements.keys(change.keys, by))
            return self.views.make(_HELD, statements.with_keys(_PLACED, _KEYS, by)), None
        self.views.keep(_KEYS, f"SELECT DISTINCT * FROM ({statements.keys(change.keys, by)})")
        keys = self.views.count(_KEYS)
        return self.views.keep(_HELD, statements.with_keys(_PLACED, _KEYS, by)), keys

    def _few_net(self, text: str) -> pa.Table | None:
        """The rows, if they are few. If they are not, they are computed again: keeping them all the same would take
        longer than that saves, because few changed rows seldom change many of the result."""
        self.views.make(_NET, text)
        found = collect(self.views.session.sql(f"SELECT * FROM {_NET} LIMIT {_FEW_ROWS + 1}"))
        return found if found.num_rows <= _FEW_ROWS else None

    def direct(self, change: DirectChange) -> tuple[NetChange, GoingRows] | None:
        """What changes, and the places of the rows that go, without Spark; None if Spark has to compute them."""
        stored = None
        if isinstance(change, AddedGroups) and self.job.stored is not None:
            stored = self.rows if self.few else self.job.stored.read(self.job.base.rows)
        found = direct_net(self.job, change, stored)
        if found is None:
            return None
        rows, keys = found
        net = NetChange(_NET, _PLACED, *few.totals(rows), keys, rows)
        going = self._going_here(net)
        return None if going is None else (net, going)

    def going(self, net: NetChange) -> GoingRows:
        """Find the rows that go. Raises RowCountMismatch if the result lacks some of them."""
        here = self._going_here(net)
        if here is not None:
            return here
        self.open()
        self.views.keep(GONE, statements.places(net.held, net.view, self.job.schema))
        table = collect(self.views.session.sql(statements.by_file(GONE)))
        hits: dict[str, int] = {}
        for path, count in zip(table["file"].to_pylist(), table["hits"].to_pylist(), strict=True):
            hits[path] = hits.get(path, 0) + int(count)
        if sum(hits.values()) != net.went:
            raise RowCountMismatch("the rows of the result that go", net.went, sum(hits.values()))
        return GoingRows(hits, FoundPlaces(table), in_view=True)

    def _going_here(self, net: NetChange) -> GoingRows | None:
        """The rows that go, found in this process; None if that is better left to Spark."""
        if not net.went:
            return GoingRows({}, FoundPlaces())
        places = None
        if net.few is not None:
            rows = few.gone(net.few)
            if self.rows is not None:
                places = few.places(self.rows, rows, self.job.schema)
            elif self.job.stored is not None:
                places = self.job.stored.places(rows)
        if places is None:
            return None
        listed = [pa.table({"file": [path] * len(at), "pos": at}) for path, at in places.items()]
        hits = {path: len(at) for path, at in places.items()}
        return GoingRows(hits, FoundPlaces(rows=pa.concat_tables(listed)))
