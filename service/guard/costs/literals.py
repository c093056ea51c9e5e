"""Bounds what Spark computes of literals while it analyses a query, by its parsed plan.

LIMIT, `stack`, schemas, formats and other arguments that must be constant are computed before there is an analysed
plan.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.guard.costs.bounds import Bound, column, literal
from service.guard.costs.functions import RULES, made_of
from service.guard.costs.limits import QueryLimits, shown, shown_bytes, sql_name, too_expensive
from service.guard.functions import split_words
from service.guard.nodes import Node, is_plan_class

# The classes of the functions that can make a large value of small ones.
_CLASSES = {
    **{"repeat": "StringRepeat", "space": "StringSpace", "randstr": "RandStr", "array_repeat": "ArrayRepeat"},
    **{"lpad": "StringLPad", "rpad": "StringRPad", "sequence": "Sequence", "format_string": "FormatString"},
    **{"printf": "FormatString", "format_number": "FormatNumber", "concat": "Concat", "concat_ws": "ConcatWs"},
    **{"array_join": "ArrayJoin", "replace": "StringReplace", "regexp_replace": "RegExpReplace"},
    **{"flatten": "Flatten", "array_insert": "ArrayInsert", "array": "CreateArray", "struct": "CreateStruct"},
    **{"int": "Cast", "bigint": "Cast", "length": "Length", "char_length": "Length", "size": "Size"},
    **{"greatest": "Greatest", "least": "Least", "pow": "Pow", "power": "Pow", "abs": "Abs", "if": "If"},
    **{"upper": "Upper", "lower": "Lower", "reverse": "Reverse", "hex": "Hex", "base64": "Base64"},
    **{"coalesce": "Coalesce", "shiftleft": "ShiftLeft", "translate": "StringTranslate"},
}
_SCHEMAS = frozenset({"from_json", "from_csv"})
_FORMATS = split_words(
    """
    date_format from_unixtime to_binary to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz
    to_timestamp_ntz to_unix_timestamp to_varchar try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
    unix_timestamp
    """
)
_MOST_SCHEMA, _MOST_FORMAT, _MOST_DEPTH = 20_000.0, 1_000.0, 62
_NOT_FOLDED = frozenset({"LambdaFunction", "UnresolvedNamedLambdaVariable"})


def check_literals(plan: Node, limits: QueryLimits, params: Mapping[str, Any]) -> None:
    """Raise QueryTooExpensive if an expression of literals and parameters makes too large a value."""
    _Literals(limits, params).bound(plan)


class _Literals:
    def __init__(self, limits: QueryLimits, params: Mapping[str, Any]) -> None:
        self.limits = limits
        self.params = params

    def bound(self, node: Node) -> Bound:
        args = [self.bound(child) for child in node.children]
        for one in node.all_trees():
            self.bound(one)
        if is_plan_class(str(node.fields["class"])) or node.name in _NOT_FOLDED:
            return Bound()
        if node.name == "Literal":
            return literal(node.fields.get("value"), node.fields.get("dataType"))
        if node.name == "NamedParameter":
            return self.parameter(str(node.fields.get("name")))
        return self.checked(node, args)

    def parameter(self, name: str) -> Bound:
        value = self.params.get(name)
        if isinstance(value, str):
            return literal(value, "string")
        return Bound() if isinstance(value, list | dict | bool | None) else literal(str(value), "double")

    def checked(self, node: Node, args: list[Bound]) -> Bound:
        name = str(node.fields.get("nameParts"))[1:-1].lower() if node.name == "UnresolvedFunction" else ""
        kind = _CLASSES.get(name, "") if name else node.name
        self.check_arguments(name, args)
        if kind == "Cast":
            return replace(args[0], text=None) if args else Bound()
        known = bool(args) and all(arg.known for arg in args)
        if not known or kind not in _RULED:
            return column("string") if not name else replace(column("string"), known=False)
        try:
            found = made_of(kind, args)
        except IndexError:  # Spark refuses the number of arguments
            return Bound()
        if found.size > self.limits.constant_bytes:
            raise too_expensive(
                f"a value of {sql_name(kind)} may have {shown_bytes(found.size)}",
                f"{shown_bytes(self.limits.constant_bytes)} are allowed (queries.max_value_mb)",
                "Use smaller numbers",
            )
        return found

    def check_arguments(self, name: str, args: list[Bound]) -> None:
        """Some arguments are programs: schemas and formats."""
        if name in _SCHEMAS and len(args) > 1 and _depth(args[1].text or "") > _MOST_DEPTH:
            raise too_expensive(
                f"the schema of {name} is nested {_depth(args[1].text or '')} levels deep",
                f"{_MOST_DEPTH} are allowed",
                "Flatten it",
            )
        for names, most, what in ((_SCHEMAS, _MOST_SCHEMA, "schema"), (_FORMATS, _MOST_FORMAT, "format")):
            if name in names and len(args) > 1 and args[1].known and args[1].size > most:
                raise too_expensive(
                    f"the {what} of {name} may have {shown(args[1].size)} bytes",
                    f"{shown(most)} are allowed",
                    "Shorten it",
                )


def _depth(schema: str) -> int:
    """How deeply a schema is nested."""
    depth = deepest = 0
    for sign in re.findall("[<>]", schema):
        depth += 1 if sign == "<" else -1
        deepest = max(deepest, depth)
    return deepest


_RULED = frozenset({*RULES, "Length", "Size", "Upper", "Lower", "Hex", "Base64", "StringTranslate"})
