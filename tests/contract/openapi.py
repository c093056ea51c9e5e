"""Whether a value fits a schema of the published OpenAPI document, in the part of JSON Schema that it uses.

A keyword that is not known here is an error, so that nothing in the document goes unread.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

ANY = "<any>"
_KINDS: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | Decimal) and not isinstance(v, bool),
}
_WORDS = {"title", "description", "default", "examples", "discriminator"}


def problems(value: Any, schema: Any, document: dict[str, Any], path: str = "$") -> list[str]:
    """What keeps a value from fitting; nothing where it fits. `"<any>"` in the value stands for a fitting one."""
    return list(_problems(value, schema, document, path))


def resolve(ref: str, document: dict[str, Any]) -> Any:
    found: Any = document
    for part in ref.removeprefix("#/").split("/"):
        found = found[part]
    return found


def _problems(value: Any, schema: Any, document: dict[str, Any], path: str) -> Iterator[str]:
    if schema is True or value == ANY:
        return
    if schema is False:
        yield f"{path} must not be there"
        return
    for word, rule in schema.items():
        if word in _WORDS:
            continue
        if word not in _RULES:
            raise AssertionError(f"the document uses {word!r} at {path}, which this check does not know")
        yield from _RULES[word](value, rule, schema, document, path)


def _ref(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    yield from _problems(value, resolve(rule, document), document, path)


def _type(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    kinds = [rule] if isinstance(rule, str) else rule
    if not any(_KINDS[kind](value) for kind in kinds):
        yield f"{path} is {value!r}, not {' or '.join(kinds)}"


def _one_of(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    found = [problems(value, option, document, path) for option in rule]
    if sum(not each for each in found) != 1:
        yield f"{path} fits {sum(not each for each in found)} of {len(rule)} alternatives: {found}"


def _any_of(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    found = [problems(value, option, document, path) for option in rule]
    if all(found):
        yield f"{path} fits no alternative: {found}"


def _all_of(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    for option in rule:
        yield from _problems(value, option, document, path)


def _properties(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in rule.keys() & value.keys():
            yield from _problems(value[name], rule[name], document, f"{path}.{name}")


def _additional(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in value.keys() - schema.get("properties", {}).keys():
            yield from _problems(value[name], rule, document, f"{path}.{name}")


def _required(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{path}.{name} is missing" for name in rule if name not in value)


def _items(value: Any, rule: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
    for i, item in enumerate(value if isinstance(value, list) else ()):
        yield from _problems(item, rule, document, f"{path}[{i}]")


def _says(fits: Callable[[Any, Any], bool]) -> Callable[..., Iterator[str]]:
    def rule(value: Any, limit: Any, schema: Any, document: Any, path: str) -> Iterator[str]:
        if not fits(value, limit):
            yield f"{path} is {value!r}, against {limit!r}"

    return rule


def _number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _moment(text: str) -> bool:
    try:
        return text.endswith("Z") and datetime.fromisoformat(text) is not None
    except ValueError:
        return False


_FORMATS: dict[str, Callable[[str], bool]] = {"date-time": _moment}
_RULES: dict[str, Callable[..., Iterator[str]]] = {
    "$ref": _ref,
    "type": _type,
    "oneOf": _one_of,
    "anyOf": _any_of,
    "allOf": _all_of,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _required,
    "items": _items,
    "const": _says(lambda v, limit: type(v) is type(limit) and v == limit),
    "enum": _says(lambda v, limit: v in limit),
    "minimum": _says(lambda v, limit: not _number(v) or v >= limit),
    "maximum": _says(lambda v, limit: not _number(v) or v <= limit),
    "minLength": _says(lambda v, limit: not isinstance(v, str) or len(v) >= limit),
    "minItems": _says(lambda value, limit: not isinstance(value, list) or len(value) >= limit),
    "maxItems": _says(lambda v, limit: not isinstance(v, list) or len(v) <= limit),
    "maxLength": _says(lambda v, limit: not isinstance(v, str) or len(v) <= limit),
    "format": _says(lambda v, limit: not isinstance(v, str) or _FORMATS[limit](v)),
    "pattern": _says(lambda v, limit: not isinstance(v, str) or re.search(limit, v) is not None),
}
