"""How a table file and a dataset file differ from those of a table, and which differences can be applied. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.errors import InvalidSchema
from service.model.ingest.dataset import Dataset, DatasetColumn
from service.model.ingest.table_file import TableFile
from service.model.schema.evolution import SchemaChanges, evolve
from service.model.schema.types import ColumnType, Field, TableSchema

_ONWARDS = "from the next ingest on"
_SAME = "the table stays as it is"
# What a change of a key of the table file does, by the beginning of its path; the longest that fits counts.
_EFFECTS = {
    "description": "the table's description changes",
    "storage": "files are exported there from now on; those that were exported before stay, and EXPORT writes all",
    "partitioning": "daily files have other names from now on; those that were exported before stay, and EXPORT "
    "writes all",
    "compaction.enabled": "whether periods are merged",
    "compaction.trigger": "the schedule of compactions changes",
    "compaction.strategy": "it takes effect from the next compaction on",
    "ingestion.dataset_config": "the path of the dataset file; what the file says is listed under dataset",
    "ingestion.watch": "the watched folder changes",
    "export": "files are exported from now on, or no longer; EXPORT writes those that are missing",
}


@dataclass(frozen=True)
class Change:
    """A difference; `refused` says why it cannot be applied, and the way out."""

    path: str
    before: Any
    after: Any
    effect: str = ""
    refused: str | None = None


@dataclass(frozen=True)
class FileDifference:
    """All differences, and the changes of columns that they mean."""

    changes: tuple[Change, ...]
    columns: SchemaChanges = field(default_factory=SchemaChanges)

    @property
    def refused(self) -> tuple[Change, ...]:
        return tuple(one for one in self.changes if one.refused)


def table_file_changes(old: TableFile, new: TableFile, *, has_rows: bool) -> list[Change]:
    """The differences of two table files, defaults included."""
    found = []
    for path, before, after in _differences(old.model_dump(mode="json"), new.model_dump(mode="json")):
        refused = None
        if path in ("name", "namespace"):
            refused = "a table keeps its name; RENAME_TABLE changes it, or CREATE_TABLE makes another table"
        elif path == "compaction.strategy.type" and has_rows:
            refused = (
                "the rows are partitioned by this kind of period already; create a table with the other kind, and "
                "ingest the files into it"
            )
        found.append(Change(path, before, after, _effect(path), refused))
    return found


def dataset_changes(old: Dataset | None, new: Dataset, schema: TableSchema) -> tuple[list[Change], SchemaChanges]:
    """The differences of two dataset files, and the changes of the table's columns that they mean.

    Without an old one the first file has not given the columns yet, and all are new.
    """
    found = [
        Change(f"dataset.{path}", before, after, f"it takes effect {_ONWARDS}")
        for path, before, after in _differences(_rules(old or Dataset(columns=new.columns)), _rules(new))
    ]
    columns = {} if old is None else {column.name: column for column in old.columns}
    known = {field.name: field.type for field in schema.fields}
    add: dict[str, Field] = {}
    types: dict[str, ColumnType] = {}
    for column in new.columns:
        path = f"dataset.columns.{column.name}"
        has = known.get(column.name)
        if has is None:
            add[column.name] = Field(column.name, column.kind)
            found.append(Change(path, None, _shown(column), "the column is added; it is null in the rows there are"))
            continue
        before = columns.get(column.name)
        if before is None:
            found.append(Change(path, None, _shown(column), f"the table's column is filled {_ONWARDS}"))
        if has != column.kind and (before is None or before.kind != column.kind):  # drift may have widened it
            found.append(_retyped(path, schema, column, has, types, before))
        if before is not None:
            found += [
                Change(f"{path}.{key}", was, now, f"it takes effect {_ONWARDS}")
                for key, was, now in _differences(_rules_of(before), _rules_of(column))
            ]
    kept = {column.name for column in new.columns}
    for name, column in columns.items():
        if name not in kept:
            why = "columns are not removed, because the rows there are have them; keep it in the dataset file"
            drop = "to remove it, send ALTER_TABLE with drop_columns first"
            refused = f"{why}, or {drop}" if name in known else None
            found.append(Change(f"dataset.columns.{name}", _shown(column), None, _SAME, refused))
    return found, SchemaChanges(add=add, types=types)


def _retyped(
    path: str,
    schema: TableSchema,
    column: DatasetColumn,
    has: ColumnType,
    types: dict[str, ColumnType],
    before: DatasetColumn | None,
) -> Change:
    shown = str(has) if before is None else before.type
    try:
        evolve(schema, SchemaChanges(types={column.name: column.kind}), ())
    except InvalidSchema:
        refused = (
            f"a column of type {has} cannot become {column.kind}; keep the type, or read the values into a column of "
            "another name"
        )
        return Change(f"{path}.type", shown, column.type, _SAME, refused)
    types[column.name] = column.kind
    return Change(f"{path}.type", shown, column.type, "the column is widened; its rows stay")


def _rules(dataset: Dataset) -> dict[str, Any]:
    """A dataset file without its columns."""
    values = dataset.model_dump(mode="json", exclude={"columns"})
    limit = dataset.max_rejects
    return {**values, "max_rejects": None if limit is None else str(limit)}


def _rules_of(column: DatasetColumn) -> dict[str, Any]:
    return column.model_dump(mode="json", exclude={"name", "type"})


def _shown(column: DatasetColumn) -> dict[str, Any]:
    return column.model_dump(mode="json", exclude_unset=True)


def _differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The path of each value that differs, with both; lists are compared as a whole."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            yield path, old, new
        return
    for key in dict.fromkeys((*old, *new)):
        yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)


def _effect(path: str) -> str:
    parts = path.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((_EFFECTS[name] for name in names if name in _EFFECTS), "")
