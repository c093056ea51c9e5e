"""The outcomes of one run's tables: counts, and up to a number of tables by name."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from service.model.names import TableName

SHOWN = 100


@dataclass(frozen=True)
class TableOutcome:
    """The outcome of one table."""

    namespace: str
    table: str
    state: Literal["done", "failed", "skipped"]
    reason: str | None = None
    """Why it was skipped, or why nothing needed to be done."""
    error: dict[str, Any] | None = None
    ms: int = 0


@dataclass(frozen=True)
class RunTally:
    """The progress of a run. Tables come in order, so that the last one shows which are left."""

    tables: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    last: tuple[str, str] | None = None
    """The namespace and the name of the table that was done last."""
    outcomes: tuple[TableOutcome, ...] = ()

    def left(self, tables: list[TableName]) -> list[TableName]:
        """The tables that are left, in order."""
        ordered = sorted(tables, key=_place)
        return ordered if self.last is None else [name for name in ordered if _place(name) > self.last]

    def plus(self, outcome: TableOutcome) -> Self:
        """With one more table. If there are too many outcomes, failures are kept rather than successes."""
        kept = (*self.outcomes, outcome)
        if len(kept) > SHOWN:
            dispensable = next((i for i, known in enumerate(kept) if known.state == "done"), 0)
            kept = kept[:dispensable] + kept[dispensable + 1 :]
        counted = {outcome.state: getattr(self, outcome.state) + 1}
        return replace(self, last=(outcome.namespace, outcome.table), outcomes=kept, **counted)

    @property
    def state(self) -> Literal["done", "partly", "failed"]:
        """The state of the run after its end."""
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
