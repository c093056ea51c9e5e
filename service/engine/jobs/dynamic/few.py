"""The change of a result, if it is of few rows, in this process. Pure."""

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from service.model.dynamic.plan import WEIGHT
from service.model.keyed.contents import Content, contents, some_of
from service.model.names import PLACE_COLUMNS
from service.model.schema.types import TableSchema

Places = Mapping[str, pa.Array]
_FILE, _POS = PLACE_COLUMNS


def totals(net: pa.Table) -> tuple[int, int, int]:
    """How many rows came and went, and how often the most frequent one of each came."""
    weights = net[WEIGHT]
    came = weights.filter(pc.greater(weights, 0))
    went = pc.sum(weights.filter(pc.less(weights, 0))).as_py() or 0
    return pc.sum(came).as_py() or 0, -went, pc.max(came).as_py() or 0


def gone(net: pa.Table) -> pa.Table:
    """The rows that go."""
    return net.filter(pc.less(net[WEIGHT], 0))


def places(stored: pa.Table, going: pa.Table, schema: TableSchema) -> Places | None:
    """The places of the rows that go among stored rows; None if one is missing."""
    wanted: Counter[Content] = Counter()
    names = list(schema.names)
    for content, weight in zip(contents(going, names), going[WEIGHT].to_pylist(), strict=True):
        wanted[content] -= weight
    found = stored.take(pa.array(some_of(contents(stored, names), wanted), pa.int64()))
    return None if any(wanted.values()) else by_file(found)


def by_file(placed: pa.Table) -> Places:
    grouped = placed.select([_FILE, _POS]).group_by(_FILE).aggregate([(_POS, "list")])
    positions = grouped[f"{_POS}_list"].to_pylist()
    return {f: pa.array(some, pa.int64()) for f, some in zip(grouped[_FILE].to_pylist(), positions, strict=True)}


def without(stored: pa.Table, at: Places) -> pa.Table:
    """The rows that are not at these places."""
    taken = {(path, position) for path, some in at.items() for position in some.to_pylist()}
    pairs = zip(stored[_FILE].to_pylist(), stored[_POS].to_pylist(), strict=True)
    return stored.filter(pa.array([pair not in taken for pair in pairs], pa.bool_()))


def new_rows(net: pa.Table, schema: TableSchema) -> pa.Table:
    """The rows that come, each as often as it comes."""
    came = net.filter(pc.greater(net[WEIGHT], 0))
    if pc.max(came[WEIGHT]).as_py() == 1:
        return came.select(list(schema.names))
    numbers = [number for number, weight in enumerate(came[WEIGHT].to_pylist()) for _ in range(weight)]
    return came.select(list(schema.names)).take(pa.array(numbers, pa.int64()))
