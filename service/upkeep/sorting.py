"""Which columns a compaction can sort by."""

from collections.abc import Sequence

from service.errors import InvalidRequest, nearest
from service.schema import DecimalType, Primitive, TableSchema

# What Iceberg's curve has an order of bytes for.
_CURVE = {"boolean", "integer", "long", "float", "double", "string", "binary", "date", "timestamp", "timestamptz"}


def check_order(strategy: str, sort_by: Sequence[str], schema: TableSchema, field: str) -> None:
    """Refuse columns that a strategy cannot sort by."""
    if strategy != "binpack" and not sort_by:
        raise InvalidRequest(f"strategy {strategy} needs {field}: the columns to sort by", field=field)
    twice = next((name for i, name in enumerate(sort_by) if name in sort_by[:i]), None)
    if twice is not None:
        raise InvalidRequest(f"{field} names {twice!r} twice; name each column once", field=field)
    types = {f.name: f.type for f in schema.fields}
    for name in sort_by:
        if name not in types:
            near = nearest(name, types)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(types)}"
            raise InvalidRequest(f"{field} names {name[:80]!r}, which the table has no column of; {hint}", field=field)
        kind = types[name]
        if not isinstance(kind, Primitive | DecimalType):
            raise InvalidRequest(f"{field} names {name!r}, whose values have no order; name others", field=field)
        if strategy == "zorder" and str(kind) not in _CURVE:
            raise InvalidRequest(
                f"{field} names {name!r}, but zorder cannot order {kind}; leave it out, or send strategy: sort",
                field=field,
            )
