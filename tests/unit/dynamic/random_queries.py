"""Random schemas, queries of every class, and random changes.

Names of columns are random; each table has a few columns of each kind. Queries whose rows depend on the order of equal
rows are not made: the text of such a query has no one answer to compare with.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

from service.model.schema.types import ColumnType, DecimalType, Field, Primitive

Row = tuple[Any, ...]
Draw = Random
_WORDS = ("amount", "city", "code", "day", "kind", "level", "owner", "price", "size", "state", "total", "unit")
_SMALL = (0, 1, 2, 3)
_VALUES: dict[str, tuple[Any, ...]] = {
    "long": _SMALL,
    "integer": _SMALL,
    "string": ("a", "b", "ab", ""),
    "decimal(9,2)": (Decimal("0.00"), Decimal("1.25"), Decimal("-3.10"), Decimal("99.99")),
    "double": (0.1, 0.2, 0.7, -0.0, 0.0, 1e9, float("nan")),
    "date": (date(2024, 1, 31), date(2024, 2, 29), date(2025, 12, 1)),
    "timestamp": (datetime(2024, 1, 31, 1), datetime(2024, 1, 31, 2)),
    "boolean": (True, False),
}
_KEYS = ("long", "integer", "string", "date")
_OTHERS = ("decimal(9,2)", "double", "timestamp", "boolean", "string")


def column_type(name: str) -> ColumnType:
    return DecimalType(9, 2) if name.startswith("decimal") else Primitive(name)


@dataclass(frozen=True)
class Table:
    """A table with a key that joins (`k`), another (`g`), two whole numbers (`v`, `n`), and another column (`x`)."""

    name: str
    id: str
    k: str
    g: str
    v: str
    n: str
    x: str
    fields: tuple[Field, ...]

    def row(self, draw: Draw) -> Row:
        return tuple(
            None if not one.required and draw.random() < 0.15 else draw.choice(_VALUES[str(one.type)])
            for one in self.fields
        )


@dataclass(frozen=True)
class Case:
    tables: tuple[Table, ...]
    query: str
    rows: dict[str, list[Row]]


def a_case(draw: Draw, kind: str) -> Case:
    """Three tables with rows, and a query of the class over them."""
    tables = a_schema(draw, ("ta", "tb", "tc"))
    rows = {one.name: [one.row(draw) for _ in range(draw.randint(0, 8))] for one in tables}
    return Case(tables, CLASSES[kind](draw, *tables), rows)


def a_schema(draw: Draw, names: Sequence[str]) -> tuple[Table, ...]:
    """Tables of these names, whose keys join."""
    joined = draw.choice(_KEYS)
    return tuple(_table(draw, name, joined) for name in names)


def a_query(draw: Draw, kind: str, tables: tuple[Table, ...]) -> str:
    """A query of the class over three of the tables, without a WINDOW clause: the service refuses those."""
    chosen = dict(zip(("ta", "tb", "tc"), draw.sample(tables, 3), strict=True))
    query = re.sub(r"\bt[abc]\b", lambda found: chosen[found[0]].name, CLASSES[kind](draw, *chosen.values()))
    query, _, window = query.partition(" WINDOW w AS ")
    return query.replace("OVER w", f"OVER {window}")


def _table(draw: Draw, name: str, joined: str) -> Table:
    words = draw.sample(_WORDS, len(_WORDS))[:6]
    kinds = ["long", joined, draw.choice(_KEYS), "long", "integer", draw.choice(_OTHERS)]
    fields = tuple(
        Field(word, column_type(kind), required=draw.randint(0, 3) == 0)
        for word, kind in zip(words, kinds, strict=True)
    )
    return Table(name, *words, tuple(draw.sample(fields, len(fields))))


@dataclass(frozen=True)
class Change:
    """Rows that go and rows that come in one table."""

    table: str
    removed: tuple[Row, ...]
    added: tuple[Row, ...]


def changes(draw: Draw, tables: tuple[Table, ...], rows: dict[str, list[Row]]) -> list[Change]:
    """Inserts, deletes, updates of a column, and copies of rows; often in several tables."""
    found = []
    for table in tables:
        if draw.randint(0, 3) == 0:
            continue
        there = rows[table.name]
        removed = tuple(draw.sample(there, len(there))[: draw.randint(0, 3)])
        added = [table.row(draw) for _ in range(draw.randint(0, 2))]
        for row in removed:
            if draw.random() < 0.5:
                place = draw.randint(0, len(row) - 1)
                added.append((*row[:place], table.row(draw)[place], *row[place + 1 :]))
        if there and draw.randint(0, 4) == 0:
            added.append(draw.choice(there))
        found.append(Change(table.name, removed, tuple(added)))
    return found


def _condition(draw: Draw, t: Table, alias: str) -> str:
    """A condition on one table, at times null."""
    forms = (
        f"{alias}.{t.v} > 1",
        f"{alias}.{t.n} <> 2",
        f"{alias}.{t.v} BETWEEN 1 AND 2",
        f"{alias}.{t.v} IN (0, 3)",
        f"{alias}.{t.k} IS NOT NULL",
        f"NOT ({alias}.{t.n} = 1 OR {alias}.{t.v} = 1)",
        f"COALESCE({alias}.{t.v}, 7) >= 2",
        f"{alias}.{t.v} <=> {alias}.{t.n}",
    )
    return str(draw.choice(forms))


def _value(draw: Draw, t: Table, alias: str) -> str:
    forms = (
        f"{alias}.{t.v}",
        f"{alias}.{t.x}",
        f"{alias}.{t.v} + {alias}.{t.n}",
        f"CASE WHEN {alias}.{t.v} > 1 THEN {alias}.{t.n} ELSE -1 END",
        f"COALESCE({alias}.{t.n}, 0) * 2",
        f"UPPER(CAST({alias}.{t.v} AS STRING)) || '!'",
        f"IF({alias}.{t.n} IS NULL, 'none', 'some')",
    )
    return str(draw.choice(forms))


def _on(draw: Draw, a: Table, b: Table, left: str, right: str) -> str:
    """The condition of a join: often an equation of keys, at times more or less than that."""
    equal = f"{left}.{a.k} = {right}.{b.k}"
    forms = (
        equal,
        equal,
        f"{equal} AND {left}.{a.v} < {right}.{b.v}",
        f"{left}.{a.k} <=> {right}.{b.k}",
        f"{equal} AND {right}.{b.n} > 0",
        f"{equal} AND {left}.{a.n} > 0",
        f"{left}.{a.v} + 1 = {right}.{b.n}",
    )
    return str(draw.choice(forms))


def _aggregate(draw: Draw, t: Table, alias: str) -> str:
    forms = (
        "COUNT(*)",
        f"COUNT({alias}.{t.v})",
        f"SUM({alias}.{t.v})",
        f"SUM({alias}.{t.n})",
        f"AVG({alias}.{t.v})",
        f"MIN({alias}.{t.x})",
        f"MAX({alias}.{t.v})",
        f"SUM(CASE WHEN {alias}.{t.n} > 1 THEN {alias}.{t.v} ELSE 0 END)",
        f"COUNT(*) FILTER (WHERE {alias}.{t.v} > 1)",
        f"SUM({alias}.{t.v}) * 2 + COUNT(*)",
    )
    return str(draw.choice(forms))


def _projection(draw: Draw, a: Table, b: Table, c: Table) -> str:
    return f"SELECT {a.id}, {_value(draw, a, 'a')} AS r1, {_value(draw, a, 'a')} AS r2 FROM ta a"


def _star(draw: Draw, a: Table, b: Table, c: Table) -> str:
    return f"SELECT * FROM ta a WHERE {_condition(draw, a, 'a')}"


def _filter(draw: Draw, a: Table, b: Table, c: Table) -> str:
    return f"SELECT {a.id}, {a.x} FROM ta a WHERE {_condition(draw, a, 'a')} AND {_condition(draw, a, 'a')}"


def _join(draw: Draw, a: Table, b: Table, c: Table) -> str:
    where = draw.choice(["", f" WHERE {_condition(draw, a, 'a')}", f" WHERE {_condition(draw, b, 'b')}"])
    on = _on(draw, a, b, "a", "b")
    return f"SELECT a.{a.id} AS r1, {_value(draw, b, 'b')} AS r2 FROM ta a JOIN tb b ON {on}{where}"


def _three(draw: Draw, a: Table, b: Table, c: Table) -> str:
    return (
        f"SELECT {_value(draw, a, 'a')} AS r1, {_value(draw, c, 'c')} AS r2 FROM ta a, tb b, tc c "
        f"WHERE {_on(draw, a, b, 'a', 'b')} AND b.{b.v} = c.{c.v} AND {_condition(draw, b, 'b')}"
    )


def _self_join(draw: Draw, a: Table, b: Table, c: Table) -> str:
    where = _condition(draw, a, "y")
    return f"SELECT x.{a.id} AS r1, y.{a.x} AS r2 FROM ta x JOIN ta y ON x.{a.v} = y.{a.n} WHERE {where}"


def _unequal(draw: Draw, a: Table, b: Table, c: Table) -> str:
    kind = draw.choice(["JOIN", "LEFT JOIN"])
    return f"SELECT a.{a.id} AS r1, b.{b.id} AS r2 FROM ta a {kind} tb b ON a.{a.v} < b.{b.v}"


def _using(draw: Draw, a: Table, b: Table, c: Table) -> str:
    kind = draw.choice(["", "LEFT ", "FULL "])
    left = f"(SELECT {a.k} AS k, {a.v} AS v FROM ta)"
    right = f"(SELECT {b.k} AS k, {b.n} AS n FROM tb)"
    return f"SELECT k, v, n FROM {left} p {kind}JOIN {right} q USING (k)"


def _natural(draw: Draw, a: Table, b: Table, c: Table) -> str:
    left = f"(SELECT {a.k} AS k, {a.v} AS v FROM ta)"
    right = f"(SELECT {b.k} AS k, {b.n} AS n FROM tb)"
    return f"SELECT k, v, n FROM {left} p NATURAL JOIN {right} q"


def _outer(kind: str) -> Callable[[Draw, Table, Table, Table], str]:
    def query(draw: Draw, a: Table, b: Table, c: Table) -> str:
        where = draw.choice(["", f" WHERE b.{b.id} IS NULL", f" WHERE {_condition(draw, a, 'a')}"])
        on = _on(draw, a, b, "a", "b")
        return f"SELECT a.{a.id} AS r1, a.{a.x} AS r2, b.{b.v} AS r3 FROM ta a {kind} JOIN tb b ON {on}{where}"

    return query


def _chained(draw: Draw, a: Table, b: Table, c: Table) -> str:
    aggregate = f"(SELECT {c.k} AS k, MAX({c.v}) AS m FROM tc GROUP BY {c.k})"
    third = draw.choice(["tc", aggregate])
    on = f"b.{b.k} = c.{c.k if third == 'tc' else 'k'}"
    shown = c.v if third == "tc" else "m"
    first = _on(draw, a, b, "a", "b")
    joins = f"ta a LEFT JOIN tb b ON {first} LEFT JOIN {third} c ON {on}"
    return f"SELECT a.{a.id} AS r1, b.{b.v} AS r2, c.{shown} AS r3 FROM {joins}"


def _semi(draw: Draw, a: Table, b: Table, c: Table) -> str:
    kind = draw.choice(["SEMI", "ANTI"])
    return f"SELECT a.{a.id}, a.{a.x} FROM ta a LEFT {kind} JOIN tb b ON {_on(draw, a, b, 'a', 'b')}"


def _exists(draw: Draw, a: Table, b: Table, c: Table) -> str:
    word = draw.choice(["", "NOT "])
    inner = f"SELECT 1 FROM tb b WHERE {_on(draw, a, b, 'a', 'b')} AND {_condition(draw, b, 'b')}"
    return f"SELECT a.{a.id}, a.{a.v} FROM ta a WHERE {word}EXISTS ({inner})"


def _in(draw: Draw, a: Table, b: Table, c: Table) -> str:
    word = draw.choice(["", "NOT "])
    where = draw.choice(["", f" WHERE {_condition(draw, b, 'b')}", f" WHERE b.{b.n} = a.{a.n}"])
    return f"SELECT a.{a.id}, a.{a.v} FROM ta a WHERE a.{a.v} {word}IN (SELECT b.{b.v} FROM tb b{where})"


def _marked(draw: Draw, a: Table, b: Table, c: Table) -> str:
    exists = f"EXISTS (SELECT 1 FROM tb b WHERE {_on(draw, a, b, 'a', 'b')})"
    members = (
        exists,
        f"a.{a.v} IN (SELECT b.{b.v} FROM tb b)",
        f"NOT a.{a.v} IN (SELECT b.{b.v} FROM tb b WHERE b.{b.n} > 1)",
    )
    form = draw.randint(0, 2)
    if form == 0:
        return f"SELECT a.{a.id}, {exists} AS r FROM ta a"
    if form == 1:
        return f"SELECT a.{a.id}, CASE WHEN {draw.choice(members)} THEN 1 ELSE 0 END AS r FROM ta a"
    return f"SELECT a.{a.id}, a.{a.x} FROM ta a WHERE {_condition(draw, a, 'a')} OR {draw.choice(members)}"


def _scalar(draw: Draw, a: Table, b: Table, c: Table) -> str:
    inner = f"(SELECT {_aggregate(draw, b, 'b')} FROM tb b WHERE {_condition(draw, b, 'b')})"
    if draw.random() < 0.5:
        return f"SELECT a.{a.id}, {inner} AS r FROM ta a"
    return (
        f"SELECT a.{a.id} FROM ta a WHERE a.{a.v} >= (SELECT AVG(b.{b.v}) FROM tb b WHERE {_condition(draw, b, 'b')})"
    )


def _correlated(draw: Draw, a: Table, b: Table, c: Table) -> str:
    inner = f"(SELECT {_aggregate(draw, b, 'b')} FROM tb b WHERE {_on(draw, a, b, 'a', 'b')})"
    form = draw.randint(0, 2)
    if form == 0:
        return f"SELECT a.{a.id}, {inner} AS r FROM ta a"
    if form == 1:
        return f"SELECT a.{a.id}, COALESCE((SELECT MAX(b.{b.v}) FROM tb b WHERE b.{b.v} < a.{a.v}), -1) AS r FROM ta a"
    return f"SELECT a.{a.id} FROM ta a WHERE (SELECT COUNT(*) FROM tb b WHERE b.{b.k} = a.{a.k}) < a.{a.v}"


def _grouped(draw: Draw, a: Table, b: Table, c: Table) -> str:
    key = draw.choice([f"a.{a.k}", f"a.{a.g}", f"a.{a.v} % 2", f"a.{a.x}"])
    first, second = _aggregate(draw, a, "a"), _aggregate(draw, a, "a")
    by = draw.choice([key, "1", "r0", "ALL"])
    return f"SELECT {key} AS r0, {first} AS r1, {second} AS r2 FROM ta a GROUP BY {by}"


def _hidden_keys(draw: Draw, a: Table, b: Table, c: Table) -> str:
    return (
        f"SELECT {_aggregate(draw, a, 'a')} AS r1 FROM ta a WHERE {_condition(draw, a, 'a')} GROUP BY a.{a.k}, a.{a.g}"
    )


def _having(draw: Draw, a: Table, b: Table, c: Table) -> str:
    having = draw.choice(
        ["COUNT(*) > 1", f"SUM(a.{a.v}) >= 2", f"MAX(a.{a.v}) > (SELECT AVG({b.v}) FROM tb)", "r1 <> 1"]
    )
    return f"SELECT a.{a.k} AS r0, COUNT(a.{a.v}) AS r1 FROM ta a GROUP BY a.{a.k} HAVING {having}"


def _global(draw: Draw, a: Table, b: Table, c: Table) -> str:
    several = ", ".join(f"{_aggregate(draw, a, 'a')} AS r{i}" for i in range(3))
    return f"SELECT {several} FROM ta a WHERE {_condition(draw, a, 'a')}"


def _recomputed(draw: Draw, a: Table, b: Table, c: Table) -> str:
    aggregate = draw.choice(
        [f"COUNT(DISTINCT a.{a.v})", f"VAR_POP(a.{a.n})", f"BOOL_OR(a.{a.v} > 2)", f"COUNT_IF(a.{a.v} = 1)"]
    )
    by = draw.choice(["", f" GROUP BY a.{a.k}"])
    return f"SELECT {aggregate} AS r1, COUNT(*) AS r2 FROM ta a{by}"


def _inexact(draw: Draw, a: Table, b: Table, c: Table) -> str:
    value = f"SUM(CAST(a.{a.v} AS DOUBLE) / 7)"
    form = draw.randint(0, 2)
    if form == 0:
        return f"SELECT a.{a.k} AS r0, {value} AS r1 FROM ta a GROUP BY a.{a.k}"
    if form == 1:
        return f"SELECT {value} AS r1, COUNT(*) AS r2 FROM ta a"
    sums = f"(SELECT a.{a.k} AS k, {value} AS s FROM ta a GROUP BY a.{a.k})"
    return f"SELECT b.{b.id} AS r0, q.s AS r1, b.{b.x} AS r2 FROM tb b JOIN {sums} q ON b.{b.k} = q.k"


def _distinct(draw: Draw, a: Table, b: Table, c: Table) -> str:
    if draw.random() < 0.5:
        return f"SELECT DISTINCT {a.k} AS r0, {_value(draw, a, 'a')} AS r1 FROM ta a"
    return f"SELECT DISTINCT a.{a.k} AS r0, b.{b.v} AS r1 FROM ta a LEFT JOIN tb b ON {_on(draw, a, b, 'a', 'b')}"


def _union(draw: Draw, a: Table, b: Table, c: Table) -> str:
    word = draw.choice(["UNION ALL", "UNION"])
    third = draw.choice(["", f" {word} SELECT {c.k}, {c.n} FROM tc"])
    first = f"SELECT {a.k} AS r0, {a.v} AS r1 FROM ta a WHERE {_condition(draw, a, 'a')}"
    return f"{first} {word} SELECT {b.k}, {b.n} FROM tb{third}"


def _set_operation(draw: Draw, a: Table, b: Table, c: Table) -> str:
    word = draw.choice(["EXCEPT", "INTERSECT"]) + draw.choice(["", " ALL"])
    return f"SELECT {a.k} AS r0, {a.v} AS r1 FROM ta {word} SELECT {b.k}, {b.v} FROM tb"


def _window(draw: Draw, a: Table, b: Table, c: Table) -> str:
    order = f"a.{a.v} DESC"
    function = draw.choice(
        [
            f"SUM(a.{a.v}) OVER (PARTITION BY a.{a.k})",
            f"RANK() OVER (PARTITION BY a.{a.k} ORDER BY {order})",
            f"DENSE_RANK() OVER (PARTITION BY a.{a.k}, a.{a.g} ORDER BY {order})",
            f"SUM(a.{a.n}) OVER (PARTITION BY a.{a.k} ORDER BY {order})",
            "COUNT(*) OVER ()",
            f"MAX(a.{a.v}) OVER w - MIN(a.{a.v}) OVER w",
        ]
    )
    return f"SELECT a.{a.id}, a.{a.k} AS r1, {function} AS r2 FROM ta a WINDOW w AS (PARTITION BY a.{a.g})"


def _first(draw: Draw, a: Table, b: Table, c: Table) -> str:
    # All columns are in the order, so that equal places are equal rows.
    order = ", ".join(f"{one.name} NULLS LAST" for one in a.fields)
    shown = ", ".join(one.name for one in a.fields)
    rows = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {a.k} ORDER BY {order}) AS place FROM ta"
    return f"SELECT {shown} FROM ({rows}) q WHERE place = 1"


def _over_join(draw: Draw, a: Table, b: Table, c: Table) -> str:
    kind = draw.choice(["JOIN", "LEFT JOIN"])
    return (
        f"SELECT b.{b.g} AS r0, {_aggregate(draw, a, 'a')} AS r1, {_aggregate(draw, b, 'b')} AS r2 "
        f"FROM ta a {kind} tb b ON {_on(draw, a, b, 'a', 'b')} GROUP BY b.{b.g}"
    )


def _over_aggregate(draw: Draw, a: Table, b: Table, c: Table) -> str:
    inner = f"SELECT a.{a.k} AS k, a.{a.g} AS g, COUNT(*) AS n, MAX(a.{a.v}) AS m FROM ta a GROUP BY a.{a.k}, a.{a.g}"
    outer = draw.choice(["SELECT k, SUM(n) AS r1, MIN(m) AS r2 FROM q GROUP BY k", "SELECT MAX(n) AS r1 FROM q"])
    return f"WITH q AS ({inner}) {outer}"


def _aggregates_joined(draw: Draw, a: Table, b: Table, c: Table) -> str:
    left = f"(SELECT {a.k} AS k, SUM({a.v}) AS s FROM ta GROUP BY {a.k})"
    right = f"(SELECT {b.k} AS k, COUNT(*) AS n FROM tb GROUP BY {b.k})"
    kind = draw.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
    return f"SELECT p.k AS r0, p.s AS r1, q.n AS r2 FROM {left} p {kind} {right} q ON p.k = q.k"


def _cte_twice(draw: Draw, a: Table, b: Table, c: Table) -> str:
    body = f"SELECT {a.k} AS k, SUM({a.v}) AS s FROM ta a WHERE {_condition(draw, a, 'a')} GROUP BY {a.k}"
    form = draw.randint(0, 2)
    if form == 0:
        return f"WITH q AS ({body}) SELECT x.k AS r0, x.s AS r1, y.s AS r2 FROM q x JOIN q y ON x.k = y.k"
    if form == 1:
        return f"WITH q AS ({body}) SELECT k, s FROM q WHERE s = (SELECT MAX(s) FROM q)"
    return f"WITH q AS ({body}) SELECT k FROM q UNION ALL SELECT k FROM q WHERE s > 2"


def _deep(draw: Draw, a: Table, b: Table, c: Table) -> str:
    """An aggregate of a join of an aggregate with a window, filtered by a subquery."""
    ranked = f"SELECT {c.k} AS k, {c.v} AS v, RANK() OVER (PARTITION BY {c.k} ORDER BY {c.v}) AS place FROM tc"
    sums = f"SELECT {b.k} AS k, SUM({b.v}) AS s FROM tb GROUP BY {b.k}"
    return (
        f"SELECT p.k AS r0, COUNT(*) AS r1, MAX(r.v) AS r2 FROM ta a JOIN ({sums}) p ON a.{a.k} = p.k "
        f"LEFT JOIN ({ranked}) r ON r.k = p.k AND r.place = 1 "
        f"WHERE p.s > (SELECT MIN({b.v}) FROM tb) OR a.{a.v} IN (SELECT {c.v} FROM tc) GROUP BY p.k"
    )


def _plain_condition(draw: Draw, t: Table, alias: str) -> str:
    """A condition that this process decides, too."""
    forms = (
        f"{alias}.{t.v} > 1",
        f"{alias}.{t.n} <> 2",
        f"2 >= {alias}.{t.v}",
        f"{alias}.{t.n} < 1.5",
        f"{alias}.{t.v} BETWEEN 1 AND 2",
        f"{alias}.{t.v} IN (0, 3)",
        f"{alias}.{t.k} IS NOT NULL",
        f"NOT ({alias}.{t.n} = 1 OR {alias}.{t.v} = 1)",
        f"({alias}.{t.v} = {alias}.{t.id} OR {alias}.{t.k} IS NULL)",
    )
    return str(draw.choice(forms))


def _plain_from(draw: Draw, a: Table, b: Table, c: Table) -> str:
    """Tables joined by equal columns."""
    second = f" AND a.{a.v} = b.{b.v}" if draw.random() < 0.3 else ""
    forms = (
        "ta a",
        f"ta a JOIN tb b ON a.{a.k} = b.{b.k}{second}",
        f"ta a JOIN ta b ON a.{a.v} = b.{a.id}",
        f"ta a JOIN tb b ON a.{a.k} = b.{b.k} JOIN tc c ON b.{b.v} = c.{c.v} AND {_plain_condition(draw, c, 'c')}",
    )
    return f"FROM {draw.choice(forms)} WHERE {_plain_condition(draw, a, 'a')}"


def _plain_rows(draw: Draw, a: Table, b: Table, c: Table) -> str:
    """Rows that are computed without Spark."""
    rows = f"SELECT a.{a.id} AS r0, a.{a.k} AS r1, a.{a.x} AS r2 {_plain_from(draw, a, b, c)}"
    return rows if draw.random() < 0.7 else f"{rows} UNION ALL {rows.replace('WHERE', 'WHERE NOT', 1)}"


def _plain_groups(draw: Draw, a: Table, b: Table, c: Table) -> str:
    """Aggregates that are computed without Spark."""
    calls = [f"COUNT(a.{a.x})", f"SUM(a.{a.v})", f"AVG(a.{a.n})", f"AVG(a.{a.v})", f"MIN(a.{a.k})", f"MAX(a.{a.v})"]
    calls += [f"SUM(a.{a.x})", f"AVG(a.{a.x})"] if "decimal" in str(_field(a, a.x).type) else [f"MAX(a.{a.g})"]
    some = ", ".join(f"{call} AS r{i}" for i, call in enumerate(draw.sample(calls, 2)))
    keys = draw.choice(["", f"a.{a.k}", f"a.{a.g}", f"a.{a.k}, a.{a.x}"])
    rows = _plain_from(draw, a, b, c)
    if not keys:
        return f"SELECT COUNT(*) AS n, {some} {rows}"
    shown = draw.choice(["", f"{keys}, "])
    return f"SELECT {shown}COUNT(*) AS n, {some} {rows} GROUP BY {keys}"


def _field(t: Table, name: str) -> Field:
    return next(one for one in t.fields if one.name == name)


CLASSES: dict[str, Callable[[Draw, Table, Table, Table], str]] = {
    "projection": _projection,
    "select *": _star,
    "filter": _filter,
    "inner join": _join,
    "join of three": _three,
    "self-join": _self_join,
    "unequal join": _unequal,
    "using": _using,
    "natural join": _natural,
    "left join": _outer("LEFT"),
    "right join": _outer("RIGHT"),
    "full join": _outer("FULL"),
    "chained left joins": _chained,
    "semi and anti join": _semi,
    "exists": _exists,
    "in": _in,
    "subquery as a value": _marked,
    "scalar subquery": _scalar,
    "correlated subquery": _correlated,
    "group by": _grouped,
    "hidden keys": _hidden_keys,
    "having": _having,
    "global aggregate": _global,
    "recomputed aggregate": _recomputed,
    "inexact values": _inexact,
    "distinct": _distinct,
    "union": _union,
    "except and intersect": _set_operation,
    "window": _window,
    "row_number = 1": _first,
    "aggregate over join": _over_join,
    "aggregate over aggregate": _over_aggregate,
    "aggregates joined": _aggregates_joined,
    "common table expression": _cte_twice,
    "deep": _deep,
    "plain rows": _plain_rows,
    "plain groups": _plain_groups,
}
