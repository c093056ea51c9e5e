"""How the columns of a file differ from those that are expected, and what that means."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.errors import FileRejected
from service.model.ingest.dataset import Dataset, DatasetColumn, DriftRules, parse_type
from service.model.ingest.reading import Cleaning, ColumnRule, Rule
from service.model.schema.definition import MAX_PRECISION
from service.model.schema.types import DecimalType, fold_case


@dataclass(frozen=True)
class Drift:
    """The columns that a file has and that are not expected, those that it lacks, and those of another type."""

    new: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    retyped: Mapping[str, str] = field(default_factory=dict)
    """The type in the file, by column."""

    def __bool__(self) -> bool:
        return bool(self.new or self.missing or self.retyped)

    def refused(self, rules: DriftRules) -> "Drift":
        """The part of it that refuses the file."""
        return self._with(rules, "fail")

    def evolved(self, rules: DriftRules) -> "Drift":
        """The part of it that changes the table."""
        return self._with(rules, "evolve")

    def _with(self, rules: DriftRules, what: str) -> "Drift":
        return Drift(
            self.new if rules.new == what else (),
            self.missing if rules.missing == what else (),
            self.retyped if rules.retyped == what else {},
        )

    def as_json(self) -> dict[str, Any]:
        """What a response shows of it; kinds without a column are absent."""
        shown = {"new": list(self.new), "missing": list(self.missing), "retyped": dict(self.retyped)}
        return {name: value for name, value in shown.items() if value}

    def __str__(self) -> str:
        parts = [f"new columns {', '.join(self.new)}"] if self.new else []
        parts += [f"missing columns {', '.join(self.missing)}"] if self.missing else []
        retyped = (f"{name} is {kind}" for name, kind in self.retyped.items())
        return "; ".join([*parts, *([f"other types: {', '.join(retyped)}"] if self.retyped else [])])


def matched(fields: tuple[str, ...], columns: tuple[DatasetColumn, ...]) -> dict[str, str]:
    """The field of the file for each column that has one: by name, without regard to case and spaces around it."""
    known = {fold_case(name.strip()): name for name in fields}
    found = {}
    for column in columns:
        if column.source_name is not None:
            name = known.get(fold_case(column.source_name.strip()))
            if name is not None:
                found[column.name] = name
    return found


def compare(
    fields: tuple[str, ...], types: Mapping[str, str], dataset: Dataset, *, with_wider_decimals: bool = False
) -> Drift:
    """How a file with these fields differs from a dataset. `types` are those of its fields that have one.

    A column that is optional or has a default need not be in the file. A decimal with more digits than its column is a
    difference only on request: its values may fit all the same.
    """
    found = matched(fields, dataset.columns)
    read = set(found.values())
    new = tuple(name for name in fields if name not in read)
    missing = tuple(
        column.name
        for column in dataset.columns
        if column.source_name is not None
        and column.name not in found
        and not column.optional
        and column.default is None
    )
    retyped = {}
    for column in dataset.columns:
        kind = types.get(found.get(column.name, ""))
        if kind is None:
            continue
        wider = with_wider_decimals and kind.startswith("DECIMAL") and _widened(_type_of(column), kind)
        if wider or not _fits(kind, _type_of(column)):
            retyped[column.name] = kind
    return Drift(new, missing, retyped)


def adopted(dataset: Dataset, drift: Drift, types: Mapping[str, str]) -> Dataset:
    """The dataset with the columns of a file: new ones are added, missing ones become optional, retyped ones wider.

    `types` are those of the new columns. FileRejected if a column cannot become as wide as it has to be.
    """
    columns = []
    for column in dataset.columns:
        if column.name in drift.retyped:
            column = column.model_copy(update={"type": _wider(column, drift.retyped[column.name])})
        if column.name in drift.missing:
            column = column.model_copy(update={"optional": True, "nullable": True})
        columns.append(column)
    columns += [DatasetColumn(name=name.strip(), type=types.get(name, "VARCHAR")) for name in drift.new]
    return Dataset.model_validate({**dataset.stored(), "columns": [c.model_dump(exclude_unset=True) for c in columns]})


def open_drift(drift: Drift, dataset: Dataset) -> Drift:
    """The part of a drift that a dataset has not adopted yet."""
    known = {fold_case(column.source_name) for column in dataset.columns if column.source_name}
    by_name = {column.name: column for column in dataset.columns}
    return Drift(
        tuple(name for name in drift.new if fold_case(name.strip()) not in known),
        tuple(name for name in drift.missing if (c := by_name.get(name)) and not c.optional and c.default is None),
        {
            name: kind
            for name, kind in drift.retyped.items()
            if (c := by_name.get(name)) and not _is_adopted(kind, _type_of(c))
        },
    )


def _is_adopted(kind: str, column: str) -> bool:
    """Whether a column has become as wide as a file that was refused needs it. Texts may be anything, so no other type
    holds those that did not convert."""
    if kind == "VARCHAR":
        return column == "VARCHAR"
    return _fits(kind, column) and _widened(column, kind) is None


def _wider(column: DatasetColumn, kind: str) -> str:
    """The type that holds the values of a column and those of a file."""
    given = _type_of(column)
    if wider := _widened(given, kind):
        return wider
    raise FileRejected(
        f"{column.name!r} is {kind} in the file but {given} in the table, and a column cannot change in this way: only "
        "INTEGER becomes BIGINT, and DECIMAL(p,s) a DECIMAL with a greater p, at most 38, and the same s; read it into "
        "a column of another name and type",
        details={"drift": {"retyped": {column.name: kind}}},
    )


def _type_of(column: DatasetColumn) -> str:
    return column.type.upper().replace(" ", "")


def _widened(column: str, kind: str) -> str | None:
    """The type that a column becomes so that it holds the values of another type; None if it does, or cannot."""
    if (column, kind) == ("INTEGER", "BIGINT"):
        return kind
    has, needs = parse_type(column), parse_type(kind)
    if not isinstance(has, DecimalType) or not isinstance(needs, DecimalType) or needs.scale > has.scale:
        return None
    precision = needs.precision - needs.scale + has.scale
    return f"DECIMAL({precision},{has.scale})" if has.precision < precision <= MAX_PRECISION else None


def stored_drift(details: Mapping[str, Any]) -> str | None:
    """The drift in the details of a FileRejected, as the ledger keeps it; None if it is not about drift."""
    drift = details.get("drift")
    if drift is None:
        return None
    types = details.get("types", {})
    return json.dumps({**drift, "new": {name: types.get(name, "VARCHAR") for name in drift.get("new", [])}})


def read_drift(text: str) -> tuple[Drift, dict[str, str]]:
    """A drift from the ledger, and the types of its new columns."""
    kept = json.loads(text)
    return Drift(tuple(kept["new"]), tuple(kept.get("missing", [])), kept.get("retyped", {})), kept["new"]


def cleaning_of(dataset: Dataset, fields: tuple[str, ...]) -> Cleaning:
    """How the rows of a file with these fields become rows of the table."""
    found = matched(fields, dataset.columns)
    rules = tuple(
        ColumnRule(
            column.name,
            column.kind,
            column.type.upper(),
            field=found.get(column.name),
            expression=dataset.expressions.get(column.name),
            default=dataset.default_of(column),
            transforms=column.transform,
            nullable=column.nullable,
        )
        for column in dataset.columns
    )
    return Cleaning(rules, dataset.predicates, keeps_failed_values=dataset.on_error == "null")


def unfit_column(rules: Sequence[Rule], rejects: Mapping[str, int], records_read: int) -> str | None:
    """The column of which no value at all converts, in a file whose values are texts: its type is another one now."""
    left = records_read
    for rule in rules:
        count = rejects.get(rule.text, 0)
        if rule.kind == "type" and count == left and count > 1:
            return rule.column
        left -= count
    return None


# The types of typed files, as dataset files name them, whose values a column can hold.
_WHOLE = ("INTEGER", "BIGINT")


def _fits(given: str, column: str) -> bool:
    """Whether values of a file's type belong into a column, so that only single values may not fit."""
    if given == column or column == "VARCHAR" or given == "VARCHAR":
        return True
    base, wanted = given.partition("(")[0], column.partition("(")[0]
    if wanted == "DECIMAL":
        return base in (*_WHOLE, "DECIMAL", "DOUBLE")
    return {
        "BIGINT": base in _WHOLE,
        "DOUBLE": base in (*_WHOLE, "DECIMAL"),
        "TIMESTAMP": base == "DATE",
    }.get(wanted, False)
