"""Random expressions over one table's columns, written with as few or as many parentheses as SQL's precedence allows.

A tree is a tuple: an operator's or a function's name and its operands; a leaf is its own text.
"""

from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from service.model.schema.definition import parse_schema

SCHEMA = parse_schema(
    {
        "fields": {
            "a": {"type": "integer"},
            "b": {"type": "long"},
            "x": {"type": "double"},
            "d": {"type": "decimal(10,2)"},
            "name": {"type": "string"},
            "other name": {"type": "string"},
            "ok": {"type": "boolean"},
            "day": {"type": "date"},
            "ts": {"type": "timestamp"},
            "seen": {"type": "timestamptz"},
            "bin": {"type": "binary"},
            "u": {"type": "uuid"},
            "tags": {"type": "array", "items": "string"},
            "days": {"type": "array", "items": "date"},
            "m": {"type": "map", "key_type": "string", "value_type": "integer"},
            "home": {"type": "struct", "fields": {"city": {"type": "string"}, "key": {"type": "uuid"}}},
        }
    }
)
Tree: TypeAlias = str | tuple[Any, ...]

# From the loosest to the tightest, as the grammar of Spark SQL has them.
_LEVELS = (
    ("or",),
    ("and",),
    ("not",),
    ("is null", "is not null", "in", "not in", "between", "not between", "like", "not like", "ilike", "rlike"),
    ("=", "<>", "<", "<=", ">", ">=", "<=>"),
    ("+", "-", "||"),
    ("*", "/", "%", "div"),
    ("negative",),
)
_LEVEL = {name: level for level, names in enumerate(_LEVELS) for name in names}
_TIGHTEST = len(_LEVELS)


def written(tree: Tree, *, full: bool) -> str:
    """The text of a tree; without `full`, only with those parentheses that change what it means."""
    if isinstance(tree, str):
        return tree
    name, *operands = tree
    if name not in _LEVEL:
        return f"{name}({', '.join(written(operand, full=full) for operand in operands)})"

    def within(operand: Tree, least: int) -> str:
        text = written(operand, full=full)
        level = _LEVEL.get(operand[0], _TIGHTEST) if isinstance(operand, tuple) else _TIGHTEST
        return f"({text})" if full or level < least else text

    level = _LEVEL[name]
    if name == "negative":
        return f"- ({written(operands[0], full=full)})"
    if name == "not":
        return f"NOT {within(operands[0], level)}"
    if level == _LEVEL["in"]:
        first, *others = operands
        inner = [within(operand, level + 1) for operand in others]
        return f"{within(first, level + 1)} {_predicate(name, inner)}"
    left, right = operands
    return f"{within(left, level)} {name} {within(right, level + 1)}"


def _predicate(name: str, operands: list[str]) -> str:
    if name.endswith("null"):
        return name
    if name.endswith("between"):
        return f"{name} {operands[0]} and {operands[1]}"
    return f"{name} ({', '.join(operands)})" if name.endswith("in") else f"{name} {operands[0]}"


def numbers(depth: int) -> SearchStrategy[Tree]:
    leaves = st.sampled_from(("a", "b", "x", "d", "0", "7", "1.50", ".5", "2e3", "9223372036854775807", "m.k"))
    if depth == 0:
        return leaves
    inner = numbers(depth - 1)
    return st.one_of(
        leaves,
        st.tuples(st.sampled_from(("+", "-", "*", "/", "%", "div")), inner, inner),
        st.tuples(st.just("negative"), inner),
        st.tuples(st.sampled_from(("abs", "ceil", "sqrt")), inner),
        st.tuples(st.sampled_from(("coalesce", "greatest", "try_divide")), inner, inner),
        st.tuples(st.just("if"), conditions(depth - 1), inner, inner),
    )


def texts(depth: int) -> SearchStrategy[Tree]:
    leaves = st.sampled_from(("name", "`other name`", "home.city", "'a'", "''", "'it''s'", "'日本 -- /* ;'"))
    if depth == 0:
        return leaves
    inner = texts(depth - 1)
    return st.one_of(
        leaves,
        st.tuples(st.just("||"), inner, inner | numbers(depth - 1)),
        st.tuples(st.sampled_from(("upper", "trim")), inner),
        st.tuples(st.just("left"), inner, st.just("2")),
    )


def conditions(depth: int) -> SearchStrategy[Tree]:
    leaves: SearchStrategy[Tree] = st.sampled_from(
        ("ok", "true", "False", ("is null", "tags"), (">=", "day", "'2024-01-31'"), ("<", "ts", "seen"))
    )
    if depth == 0:
        return leaves
    inner, number, text = conditions(depth - 1), numbers(depth - 1), texts(depth - 1)
    compared = st.sampled_from(("=", "<>", "<", "<=", ">", ">=", "<=>"))
    return st.one_of(
        leaves,
        st.tuples(st.sampled_from(("and", "or")), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(compared, number, number),
        st.tuples(st.sampled_from(("=", "<>")), inner, inner),
        st.tuples(st.sampled_from(("is null", "is not null")), inner | number | text),
        st.tuples(st.sampled_from(("between", "not between", "in", "not in")), number, number, number),
        st.tuples(st.sampled_from(("like", "not like", "ilike")), texts(0), texts(0)),
        # A regular expression must be a literal.
        st.tuples(st.just("rlike"), texts(0), st.sampled_from(("'a'", "''", "'[a-z]+ 日本'"))),
    )


def trees(depth: int = 3) -> SearchStrategy[Tree]:
    return numbers(depth) | texts(depth) | conditions(depth)
