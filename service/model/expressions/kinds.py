"""The kinds of values in an expression, by which it is checked before Spark receives it.

A kind is a column type. For computed numbers it only distinguishes whole, decimal and floating-point numbers.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from service.model.schema.types import FLOATING, Array, ColumnType, DecimalType, Map, Primitive, Struct

Kind: TypeAlias = ColumnType | None
"""None is the kind of a null without a type."""
Family = Literal["number", "text", "boolean", "time", "binary", "list", "map", "struct", "null"]

STRING = Primitive("string")
UUID = Primitive("uuid")
BOOLEAN = Primitive("boolean")
INTEGER = Primitive("integer")
LONG = Primitive("long")
DOUBLE = Primitive("double")
DECIMAL = DecimalType(38, 18)
DATE = Primitive("date")
TIMESTAMP = Primitive("timestamp")
TIMESTAMPTZ = Primitive("timestamptz")
BINARY = Primitive("binary")

_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("integer", "long", "float", "double"), "number"),
    **dict.fromkeys(("string", "uuid"), "text"),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), "time"),
    "boolean": "boolean",
    "binary": "binary",
}
_BY_CLASS: dict[type, Family] = {type(None): "null", DecimalType: "number", Array: "list", Map: "map", Struct: "struct"}
_WORDS: dict[Family, str] = {
    "number": "a number",
    "text": "text",
    "boolean": "true or false",
    "time": "a date or a time",
    "binary": "binary",
    "list": "an array",
    "map": "a map",
    "struct": "a struct",
    "null": "null",
}


class NoCommonKind(Exception):
    """Two kinds that have nothing in common."""

    def __init__(self, one: Kind, other: Kind) -> None:
        super().__init__(f"{describe_kind(one)} and {describe_kind(other)}")


def family(kind: Kind) -> Family:
    return _FAMILIES[kind.name] if isinstance(kind, Primitive) else _BY_CLASS[type(kind)]


def describe_kind(kind: Kind) -> str:
    """The kind in words, for messages."""
    return _WORDS[family(kind)]


def is_plain(kind: Kind) -> bool:
    """Whether its values are single values, which can be compared."""
    return isinstance(kind, Primitive | DecimalType)


def common_kind(kinds: Iterable[Kind]) -> Kind:
    """The kind that values of all these kinds have in common; raises NoCommonKind."""
    found: Kind = None
    for kind in kinds:
        if found is None or kind is None or found == kind:
            found = found or kind
        elif family(found) != family(kind) or not is_plain(kind):
            raise NoCommonKind(found, kind)
        elif family(kind) == "number":
            found = _wider(found, kind)
        elif family(kind) == "text":
            found = STRING
        else:
            found = TIMESTAMPTZ if TIMESTAMPTZ in (found, kind) else TIMESTAMP
    return found


def quotient_kind(one: Kind, other: Kind) -> Kind:
    """The kind of one number divided by another."""
    both = common_kind((one, other))
    return both if isinstance(both, DecimalType) else DOUBLE


def fits(kind: Kind, column: ColumnType) -> bool:
    """Whether such values fit a column without a CAST: the conversion may only lose digits."""
    if kind is None or kind == column:
        return True
    if isinstance(kind, Array) and isinstance(column, Array):
        return kind.items == column.items and not column.items_required
    if family(kind) != family(column) or not is_plain(kind):
        return False
    return column not in (DATE, UUID)


def castable(kind: Kind, to: ColumnType) -> bool:
    """Whether CAST can convert the kind."""
    of, wanted = family(kind), family(to)
    if of in ("null", wanted):
        return is_plain(to)
    if not is_plain(kind) or not is_plain(to):
        return False
    return "text" in (of, wanted) or {of, wanted} == {"number", "boolean"}


def _wider(one: Kind, other: Kind) -> Kind:
    if str(one) in FLOATING or str(other) in FLOATING:
        return DOUBLE
    return DECIMAL if isinstance(one, DecimalType) or isinstance(other, DecimalType) else LONG
