"""Which columns a compaction can sort by."""

from collections.abc import Sequence

from service.errors import InvalidRequest, UnknownField
from service.model.schema.partition import PartitionField
from service.model.schema.types import DecimalType, Primitive, TableSchema, resolve_field

# The types that Iceberg can order by bytes, for the curve through several columns.
_CURVE = {"boolean", "integer", "long", "float", "double", "string", "binary", "date", "timestamp", "timestamptz"}


def check_order(
    strategy: str, sort_by: Sequence[str], schema: TableSchema, path: str, partition: Sequence[PartitionField] = ()
) -> None:
    """Refuse columns that a strategy cannot sort by; `path` is where they stand in the request."""
    if strategy != "binpack" and not sort_by:
        raise InvalidRequest(
            f"{path} is missing: strategy {strategy} needs the columns to sort by; name some, or send strategy binpack",
            field=path,
        )
    for i, name in enumerate(sort_by):
        at = f"{path}[{i}]"
        kind = resolve_field(schema, name, error=UnknownField, path=at).type
        problem = None
        if not isinstance(kind, Primitive | DecimalType):
            problem = f"is {kind}, which has no order; name columns of simple types"
        elif strategy == "zorder" and str(kind) not in _CURVE:
            problem = f"is {kind}, which zorder cannot order; leave it out, or send strategy: sort"
        elif strategy == "zorder" and name not in schema.names:
            problem = (
                "lies inside another column, and zorder takes whole columns only; leave it out, or send strategy: sort"
            )
        elif name in sort_by[:i]:
            problem = "is listed twice; name each column once"
        if problem:
            raise InvalidRequest(f"{at}: {name!r} {problem}", field=at)
    same_in_each_file = {field.field for field in partition if field.transform == "identity"}
    if strategy == "zorder" and same_in_each_file.issuperset(sort_by):
        raise InvalidRequest(
            f"{path}: the table is partitioned by these columns, so that zorder has nothing to order; name another one "
            "too",
            field=path,
        )
