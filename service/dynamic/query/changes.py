"""The change of each operator as SQL, from the changes of its inputs: rows with weights."""

from collections.abc import Set

from sqlglot import exp

from service.dynamic.query.dialect import quoted, sql_of
from service.dynamic.query.limits import Limit, Pair, equal_pairs, null_aware_pair
from service.dynamic.query.operators import (
    Filter,
    Group,
    InnerJoin,
    Matched,
    Operator,
    Select,
    SetOperation,
    SourceRows,
    Union,
    Windows,
    column,
    walk,
)
from service.dynamic.query.rows import NO_COLUMN, Rows, Version, all_true, names, select_list, simple
from service.model.dynamic.plan import WEIGHT, delta


def weighted(columns: tuple[str, ...]) -> str:
    """The select list of a change."""
    return ", ".join((*map(quoted, columns), WEIGHT))


def weight(value: int) -> str:
    return f", CAST({value} AS BIGINT) AS {WEIGHT}"


def netted(columns: str, sql: str) -> str:
    """A change whose equal rows are added up, without those that come as often as they go."""
    total = f"SELECT {columns}, SUM({WEIGHT}) AS {WEIGHT} FROM ({sql}) AS a GROUP BY {columns}"
    return f"SELECT * FROM ({total}) AS a WHERE {WEIGHT} <> 0"


class Changes(Rows):
    """Writes changes as SQL. Only operators with a changed source have one."""

    def __init__(self, root: Operator, changed: Set[int]) -> None:
        super().__init__(root, changed)
        self._views: dict[int, str] = {}
        self._limits: dict[tuple[str, int], tuple[Limit, ...]] = {}
        self._nulls: dict[tuple[str, str], tuple[str, str]] = {}
        readers = [id(each) for one in walk(root) for each in one.inputs]
        self._shared = {one for one in readers if readers.count(one) > 1}

    def change(self, one: Operator) -> str:
        """The operator's change as a query."""
        if id(one) in self._views or id(one) in self._shared:
            return f"SELECT {weighted(one.columns)} FROM {self.change_view(one)}"
        return self._change(one)

    def change_view(self, one: Operator) -> str:
        """The operator's change as a view."""
        if id(one) not in self._views:
            self._views[id(one)] = self.view("d", self._change(one))
        return self._views[id(one)]

    def _change(self, one: Operator) -> str:
        match one:
            case SourceRows():
                fields = ", ".join(f"{quoted(one.names[c])} AS {quoted(c)}" for c in one.columns)
                return f"SELECT {fields}, {WEIGHT} FROM {delta(one.number)}"
            case Select():
                fields = select_list(one.expressions, one.columns)
                return f"SELECT {fields}, {WEIGHT} FROM ({self.change(one.input)}) AS a"
            case Filter():
                where = all_true(one.conditions)
                return f"SELECT {weighted(one.columns)} FROM ({self.change(one.input)}) AS a WHERE {where}"
            case Union():
                return " UNION ALL ".join(
                    self.part(one, i, self.change(part), f", {WEIGHT}")
                    for i, part in enumerate(one.parts)
                    if self.changes(part)
                )
            case InnerJoin():
                return self._join_change(one)
            case Matched():
                return self._matched_change(one)
            case Group() | Windows() | SetOperation():
                return self._recomputed(one)
        raise AssertionError(one)

    def _join_change(self, one: InnerJoin) -> str:
        terms = []
        for i, part in enumerate(one.parts):
            if not self.changes(part):
                continue
            rest: list[tuple[Operator, Version, tuple[Limit, ...]]] = [
                (other, "new" if j < i else "old", ()) for j, other in enumerate(one.parts) if j != i
            ]
            terms.append(self.chain(self.change(part), part.columns, rest, one, small=True, weight=True))
        return " UNION ALL ".join(terms)

    def _matched_change(self, one: Matched) -> str:
        terms = []
        if self.changes(one.left):
            view = self.change_view(one.left)
            right = self._right_rows(one, "new", view)
            terms.append(self.matched(one, f"SELECT * FROM {view}", right, f", {WEIGHT}"))
        if self.changes(one.right):
            touched = self._touched(one)
            versions: list[tuple[Version, int]] = [("new", 1), ("old", -1)]
            for version, value in versions:
                right = self._right_rows(one, version, touched)
                terms.append(self.matched(one, f"SELECT * FROM {touched}", right, weight(value)))
        return " UNION ALL ".join(terms)

    def _right_rows(self, one: Matched, version: Version, view: str) -> str:
        """The right rows, limited to what the left rows of a view can match."""
        if (view, id(one)) not in self._limits:
            self._limits[view, id(one)] = self.right_limits(one, view)
        limits = self._limits[view, id(one)]
        compared = null_aware_pair(one.conditions, one.left.columns, one.right.columns)
        right = self.rows(one.right, version, limits)
        if limits or compared is None:
            return right
        return self._near(right, names(one.right.columns), compared[1], view, compared[0])

    def _near(self, sql: str, columns: str, value: exp.Expr, view: str, other: exp.Expr) -> str:
        """The rows whose value is null or equals another in a view; all rows if there is a null in the view."""
        text = sql_of(other)
        if (view, text) not in self._nulls:
            keys = f"SELECT DISTINCT {text} AS item FROM {view} AS a UNION SELECT NULL"
            null = f"SELECT 1 AS {NO_COLUMN} FROM {view} AS a WHERE ({text}) IS NULL LIMIT 1"
            self._nulls[view, text] = (self.view("k", keys), self.view("n", null))
        keys, null = self._nulls[view, text]
        on = f"({sql_of(value)}) <=> k.item"
        others = f"SELECT * FROM ({sql}) AS a LEFT ANTI JOIN {keys} AS k ON {on}"
        return (
            f"SELECT * FROM ({sql}) AS a LEFT SEMI JOIN {keys} AS k ON {on} "
            f"UNION ALL SELECT {columns} FROM ({others}) AS a CROSS JOIN {null} AS n"
        )

    def _touched(self, one: Matched) -> str:
        """The left rows, as they were, that may match a row which came to the right or went from it."""
        view = self.change_view(one.right)
        compared = null_aware_pair(one.conditions, one.left.columns, one.right.columns)
        if compared and not equal_pairs(one.conditions, set(one.right.columns), set(one.left.columns)):
            left = self.rows(one.left, "old")
            return self.view("t", self._near(left, names(one.left.columns), compared[0], view, compared[1]))
        pairs = equal_pairs(one.conditions, set(one.right.columns), set(one.left.columns))
        limits = (self.limit(view, pairs),) if pairs and not simple(one.left) else ()
        left, on = self.rows(one.left, "old", limits), all_true(one.conditions) or "TRUE"
        return self.view("t", f"SELECT a.* FROM ({left}) AS a LEFT SEMI JOIN {view} AS b ON {on}")

    def keys(self, one: Group | Windows, named: dict[str, str] | None = None) -> str:
        """The view of the keys that occur in the change of the input, under other names if they are given."""
        named = named or {key: key for key in one.keys}
        fields = ", ".join(f"{quoted(key)} AS {quoted(name)}" for key, name in named.items())
        return self.view("k", f"SELECT DISTINCT {fields} FROM ({self.change(one.input)}) AS a")

    def any_change(self, one: Operator) -> str:
        """A view with one row if the operator changes, else none."""
        return self.view("k", f"SELECT 1 AS present FROM ({self.change(one)}) AS a LIMIT 1")

    def _recomputed(self, one: Group | Windows | SetOperation) -> str:
        """The rows of all keys that occur in changes, as they are now, less as they were."""
        limits: tuple[Limit, ...] = ()
        if isinstance(one, SetOperation):
            parts = [self.part(one, i, self.change(each)) for i, each in enumerate(one.inputs) if self.changes(each)]
            view = self.view("k", " UNION ".join(parts))
            limits = (Limit(view, tuple(Pair(column(name), name) for name in one.names)),)
        elif one.keys:
            view = self.keys(one)
            limits = (Limit(view, tuple(Pair(column(key), key) for key in one.keys)),)
        versions: list[tuple[Version, int]] = [("new", 1), ("old", -1)]
        sql = " UNION ALL ".join(
            f"SELECT *{weight(value)} FROM ({self.rows(one, version, limits)}) AS a" for version, value in versions
        )
        comparable = not isinstance(one, Windows) or one.comparable
        return netted(", ".join(map(quoted, one.columns)), sql) if one.columns and comparable else sql
