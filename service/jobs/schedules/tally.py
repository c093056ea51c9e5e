"""What became of the tables of one run, in figures and, of so many, by name."""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from service.model.names import TableName

SHOWN = 100


@dataclass(frozen=True)
class TableOutcome:
    """What became of one table."""

    namespace: str
    table: str
    state: Literal["done", "failed", "skipped"]
    reason: str | None = None
    """Why it was skipped, or why nothing needed to be done."""
    error: dict[str, Any] | None = None
    ms: int = 0


@dataclass(frozen=True)
class RunTally:
    """How far a run is. Tables come in order, so that the last one says which are left."""

    tables: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    last: tuple[str, str] | None = None
    """The namespace and the name of the table that was finished last."""
    outcomes: tuple[TableOutcome, ...] = field(default=())

    def left(self, tables: list[TableName]) -> list[TableName]:
        """The tables that are still to be looked after, in order."""
        ordered = sorted(tables, key=_place)
        return ordered if self.last is None else [name for name in ordered if _place(name) > self.last]

    def plus(self, outcome: TableOutcome) -> Self:
        """With one table more. Of many outcomes those that are no success are kept."""
        kept = (*self.outcomes, outcome)
        if len(kept) > SHOWN:
            dispensable = next((i for i, known in enumerate(kept) if known.state == "done"), 0)
            kept = kept[:dispensable] + kept[dispensable + 1 :]
        counted = {outcome.state: getattr(self, outcome.state) + 1}
        return replace(self, last=(outcome.namespace, outcome.table), outcomes=kept, **counted)

    @property
    def state(self) -> Literal["done", "partly", "failed"]:
        """What the run came to, now that it has ended."""
        if not self.failed:
            return "done"
        return "partly" if self.done or self.skipped else "failed"

    def dumps(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def loads(cls, text: str) -> Self:
        values = json.loads(text)
        values["outcomes"] = tuple(TableOutcome(**outcome) for outcome in values["outcomes"])
        values["last"] = values["last"] and tuple(values["last"])
        return cls(**values)


def _place(name: TableName) -> tuple[str, str]:
    return name.namespace, name.table
