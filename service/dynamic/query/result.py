"""How columns of an operator are kept in the result."""

from dataclasses import dataclass, field

from sqlglot import exp

from service.dynamic.query.operators import Filter, Group, Operator, Select, Windows, column


@dataclass
class KeptResult:
    """The result: the query's columns, and hidden ones for what it does not select."""

    root: Select
    core: Group | Windows
    """The operator below projections and filters of the root."""
    hidden: list[str] = field(default_factory=list)
    _columns: dict[str, str] = field(default_factory=dict)

    def keep(self, name: str, prefix: str) -> None:
        """Keep a column of the core, in a hidden column unless the query selects it."""
        shown = self._shown(name)
        if shown is None:
            shown = f"{prefix}{len(self.hidden) + 1}"
            self.hidden.append(shown)
            self._carry(name, shown)
        self._columns[name] = shown

    def column_of(self, name: str) -> str:
        """The result's name of a column that is kept."""
        return self._columns[name]

    def _shown(self, name: str) -> str | None:
        for shown, expression in self.root.expressions.items():
            value, below = expression, self.root.input
            while isinstance(value, exp.Column) and below is not self.core:
                if isinstance(below, Select):
                    value = below.expressions[value.name]
                below = below.inputs[0]
            if below is self.core and isinstance(value, exp.Column) and value.name == name:
                return shown
        return None

    def _carry(self, name: str, shown: str) -> None:
        below = self.root.input
        while below is not self.core:
            if isinstance(below, Select):
                below.expressions[name] = column(name)
            below = below.inputs[0]
        self.root.expressions[shown] = column(name)


def keyed_core(root: Operator) -> Group | Windows | None:
    """The operator at the root, below projections and filters, whose rows are computed key by key."""
    one = root
    while isinstance(one, Select | Filter):
        one = one.input
    return one if isinstance(one, Group | Windows) else None


def above(root: Operator, core: Operator | None) -> list[Operator]:
    """The operators from the root down to its core, without it."""
    found: list[Operator] = []
    one = root
    while core is not None and one is not core:
        found.append(one)
        one = one.inputs[0]
    return found
