"""Read YAML without surprises: the values of JSON, no others, and no duplicate keys."""

import math
import re
from decimal import Decimal
from itertools import pairwise
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
_TYPE_START, _TYPE_END = re.compile(r"\w+\(\s*\d+\Z"), re.compile(r"\d+\s*\)\Z")
_FLOW = ("[", "{", "'", '"')
# What reading a text that is not YAML raises.
NOT_YAML = (yaml.YAMLError, ValueError, KeyError, RecursionError)


class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it ships no types
    """A safe loader with the plain values of YAML 1.2, except those that would not be printed as they were written.

    So 01234, +41, 0x1F, 12:30, a date and `no` are text.
    """


def yaml_problem(error: Exception) -> str:
    """What is wrong with a text, by one of the errors NOT_YAML: with its line and what is there, if that is known."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    problem = " ".join(filter(None, (error.problem or error.context, error.note)))
    # At the end of the text there is nothing to show: then what is incomplete began earlier.
    for mark in filter(None, (error.problem_mark, error.context_mark)):
        snippet = mark.get_snippet() or ""
        if snippet.strip(" ^\n"):
            return f"line {mark.line + 1}: {problem}\n{snippet}"
    return f"line {error.problem_mark.line + 1}: {problem}" if error.problem_mark else problem


def value_of(text: str) -> Any:
    """The value of an option: a plain value, a list, an object or a quoted text; anything else is text as it is.

    An empty text is a text, not null. A number with more digits than a float holds is a `Decimal`.
    """
    if not text:
        return text
    if not text.lstrip().startswith(_FLOW):
        return _plain(text)
    try:
        node = yaml.compose(text, Loader)
    except (yaml.YAMLError, RecursionError):
        return text
    return Loader("").construct_document(node) if not text[node.end_mark.index :].strip() else text


def _plain(text: str) -> Any:
    loader = Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    try:
        return loader.construct_document(yaml.ScalarNode(tag, text))
    except ValueError:  # more digits than Python converts
        return text


def _refuse_split_type(first: yaml.Node, then: yaml.Node) -> None:
    """Refuse what follows an entry if both together are a type such as decimal(10,2), whose comma ended the entry."""
    if not all(isinstance(each, yaml.ScalarNode) and each.style is None for each in (first, then)):
        return
    start, end = _TYPE_START.search(first.value), _TYPE_END.match(then.value)
    if start and end:
        whole = f"{start[0]},{end[0]}"
        raise yaml.constructor.ConstructorError(
            None, None, f'the comma ends the value {start[0]}; put the type in quotes: "{whole}"', first.start_mark
        )


def _mapping(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for (_, first), (key_node, value) in pairwise(node.value):
        if isinstance(value, yaml.ScalarNode) and not value.value:
            _refuse_split_type(first, key_node)
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is not text; put it in quotes", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"{key!r} is given twice; leave one out", key_node.start_mark
            )
        seen.add(key)
    return {loader.construct_object(k, deep=True): loader.construct_object(v, deep=True) for k, v in node.value}


def _sequence(loader: Loader, node: yaml.SequenceNode) -> list[Any]:
    for first, then in pairwise(node.value):
        _refuse_split_type(first, then)
    return [loader.construct_object(each, deep=True) for each in node.value]


def _float(loader: Loader, node: yaml.ScalarNode) -> float | Decimal | str:
    text: str = loader.construct_scalar(node)
    value = float(text)
    if not math.isfinite(value):
        return text  # JSON has no infinity
    return value if Decimal(repr(value)) == Decimal(text) else Decimal(text)


Loader.yaml_constructors = {
    None: yaml.SafeLoader.construct_undefined,
    f"{_TAG}null": yaml.SafeLoader.construct_yaml_null,
    f"{_TAG}bool": yaml.SafeLoader.construct_yaml_bool,
    f"{_TAG}int": yaml.SafeLoader.construct_yaml_int,
    f"{_TAG}float": _float,
    f"{_TAG}str": yaml.SafeLoader.construct_yaml_str,
    f"{_TAG}seq": _sequence,
    f"{_TAG}map": _mapping,
}
Loader.yaml_implicit_resolvers = {}
_WHOLE = "(?:0|[1-9][0-9]*)"
for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", f"-?{_WHOLE}", list("-0123456789")),
    ("float", rf"-?(?:{_WHOLE}\.?|{_WHOLE}?\.[0-9]+)(?:[eE][-+]?[0-9]+)?", list("-.0123456789")),
):
    Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"(?:{_pattern})\\Z"), _first)
