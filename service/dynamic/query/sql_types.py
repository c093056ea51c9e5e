"""Firn's column types in Spark SQL."""

from sqlglot import exp

from service.model.schema.types import Array, ColumnType, DecimalType, Map, Primitive, Struct

_NAMES = {
    "string": "STRING",
    "integer": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
    "binary": "BINARY",
    "uuid": "STRING",
}


def cast(value: exp.Expr, kind: ColumnType) -> exp.Expr | None:
    """The value as a type; None if the type is nested."""
    if isinstance(kind, DecimalType):
        return exp.Cast(this=value, to=exp.DataType.build(f"DECIMAL({kind.precision}, {kind.scale})", dialect="spark"))
    if isinstance(kind, Primitive) and kind.name in _NAMES:
        return exp.Cast(this=value, to=exp.DataType.build(_NAMES[kind.name], dialect="spark"))
    return None


def typed_null(kind: ColumnType) -> exp.Expr | None:
    """NULL of a type; None if the type is nested."""
    return cast(exp.Null(), kind)


def has_map(kind: ColumnType) -> bool:
    """Whether values of the type are maps, or have maps in them: they cannot be compared."""
    match kind:
        case Map():
            return True
        case Array():
            return has_map(kind.items)
        case Struct():
            return any(has_map(one.type) for one in kind.fields)
    return False
