"""Attributes of the sender in a filter, as `{"principal": "claims.region"}` in place of a value.

They become values of the parsed filter, never a part of its text. Only a policy's filter has them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.errors import InvalidFilter
from service.model.expressions.kinds import is_plain
from service.model.schema.columns import Column
from service.model.schema.types import Array, ColumnType, DecimalType, Primitive

PRINCIPAL = "principal"
CLAIMS = "claims."
OF_EVERY_SENDER = ("name", "id", "tenant", "roles")
_LISTS = ("in", "not_in")
# An attribute must not become a pattern, and text that is empty begins every other text.
_OPERATORS = (*_LISTS, "eq", "ne", "gt", "gte", "lt", "lte", "between", "array_contains")
_SAMPLES: dict[str, Any] = {
    "string": "x",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "boolean": True,
    "integer": 1,
    "long": 1,
    "float": 1,
    "double": 1,
    "date": "2000-01-01",
    "timestamp": "2000-01-01T00:00:00",
    "timestamptz": "2000-01-01T00:00:00Z",
    "binary": "",
}
Attribute = Callable[[str, Column, str, str], Any]
"""The value of an attribute, by its name, beside a column and an operator, at a place in the request."""


class MissingAttribute(InvalidFilter):
    """The sender does not have an attribute, or it has several values where one is needed."""


@dataclass(frozen=True)
class AttributeValues:
    """What is known of one sender."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str, column: Column, operator: str, path: str) -> Any:
        """A list for the operators that need one. Raises MissingAttribute."""
        found = self.values.get(name)
        if found is None:
            raise MissingAttribute.at(path, "the sender does not have this attribute")
        if operator in _LISTS:
            return found if isinstance(found, list) else [found]
        if isinstance(found, list):
            raise MissingAttribute.at(path, "the sender has several values of this attribute")
        return found


def check_attribute(name: str, column: Column, operator: str, path: str) -> Any:
    """A value that an attribute could have; InvalidFilter if there is no such attribute, or it cannot fit here."""
    if name not in OF_EVERY_SENDER and not (name.startswith(CLAIMS) and len(name) > len(CLAIMS)):
        known = ", ".join((*OF_EVERY_SENDER, f"{CLAIMS}<name>"))
        raise InvalidFilter.at(path, f"{name[:80]!r} is not an attribute of the sender; use one of {known}")
    if operator not in _OPERATORS:
        raise InvalidFilter.at(path, f"{operator} cannot be used with an attribute; use {', '.join(_OPERATORS)}")
    if name == "roles" and operator not in _LISTS:
        raise InvalidFilter.at(path, "a sender can have several roles; use in or not_in")
    kind = column.type.items if operator == "array_contains" and isinstance(column.type, Array) else column.type
    if name in OF_EVERY_SENDER and kind != Primitive("string"):
        problem = f"{name} is text, but {column.name!r} is {column.type}; compare it with a column of text"
        raise InvalidFilter.at(path, problem)
    sample = _sample(kind)
    return [sample] if operator in _LISTS else sample


def _sample(kind: ColumnType) -> Any:
    if isinstance(kind, DecimalType) or not is_plain(kind):
        return 0  # if it is not plain, the operator refuses the column
    return _SAMPLES[str(kind)]
