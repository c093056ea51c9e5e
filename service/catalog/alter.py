"""Change the columns and properties of a table in one commit of its metadata."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.schema import UpdateSchema

from service.catalog import types
from service.catalog.tables import Catalog, Table
from service.errors import InvalidSchema
from service.model.names import CHANGES_PROPERTY
from service.model.schema.evolution import SchemaChanges, name_after
from service.model.schema.types import Field, Struct, TableSchema, without_hidden_columns

# How many of its latest changes a table remembers.
_REMEMBERED = 20
_INCOMPATIBLE = "these changes cannot be made together; send them one after the other"


@dataclass(frozen=True)
class Alteration:
    """A change of a table: its columns, with `after` as the result, and its properties, of which None removes one."""

    changes: SchemaChanges
    after: TableSchema
    properties: Mapping[str, str | None]


def alter(
    catalog: Catalog,
    table: Table,
    batch: str,
    decide: Callable[[Table], Alteration],
    commit_gate: Callable[[], object] = lambda: None,
) -> Table:
    """Change a table as `decide` says, given its newest metadata, however often others commit at the same time.

    The commit is based on the newest snapshot. `commit_gate` is called after that one was read: an instance that takes
    over the batch first commits a snapshot, which makes this commit fail.
    """

    def change(current: IcebergTable) -> None:
        wanted = decide(Table(table.name, current))
        properties = {**wanted.properties, CHANGES_PROPERTY: _remembered(current, batch)}
        new = {key: value for key, value in properties.items() if value is not None}
        gone = [key for key, value in properties.items() if value is None and key in current.properties]
        commit_gate()
        with current.transaction() as transaction:
            head = current.metadata.current_snapshot_id
            transaction._apply((), (AssertRefSnapshotId(ref="main", snapshot_id=head),))
            if wanted.changes.any:
                _update(transaction, wanted, current.schema()).commit()
            transaction.set_properties(new).remove_properties(*gone)

    return catalog.change_metadata(table, change)


def altered_by(table: Table, batch: str) -> bool:
    """Whether a table's properties name a batch among its last changes."""
    return batch in table.properties.get(CHANGES_PROPERTY, "").split(",")


def _remembered(current: IcebergTable, batch: str) -> str:
    known = [one for one in current.properties.get(CHANGES_PROPERTY, "").split(",") if one and one != batch]
    return ",".join([*known, batch][-_REMEMBERED:])


class _Update(UpdateSchema):
    """A change of columns that keeps the order of the key columns, which PyIceberg treats as a set."""

    _key: tuple[str, ...] = ()

    def set_identifier_fields(self, *fields: str) -> None:
        self._key = fields
        super().set_identifier_fields(*fields)

    def _apply(self) -> Schema:
        made = super()._apply()
        ids = [made.find_field(name).field_id for name in self._key]
        return Schema(*made.fields, schema_id=made.schema_id, identifier_field_ids=ids)


def _update(transaction: Transaction, wanted: Alteration, before: Schema) -> _Update:
    """The change of columns, not yet committed; InvalidSchema if PyIceberg's result is not the one wanted."""
    with _refused():
        update = _Update(transaction, name_mapping=transaction.table_metadata.name_mapping())
        _stage(update, wanted, before)
        made = without_hidden_columns(types.from_iceberg(update._apply()))
    if made != wanted.after:
        raise InvalidSchema(_INCOMPATIBLE)
    return update


@contextmanager
def _refused() -> Iterator[None]:
    """Translate PyIceberg's refusals of a change."""
    try:
        yield
    except (ValueError, ValidationError, StopIteration) as e:
        raise InvalidSchema(_INCOMPATIBLE) from e


def _stage(update: UpdateSchema, wanted: Alteration, before: Schema) -> None:
    changes = wanted.changes
    for name in changes.drop:
        update.delete_column(_steps(name))
    for name, kind in changes.types.items():
        update.update_column(_steps(name), field_type=types.to_type(kind))
    for name, nullable in changes.nullable.items():
        if nullable:
            update.make_column_optional(_steps(name))
    for name, new in changes.rename.items():
        update.rename_column(_steps(name), new)
    for name, field in changes.add.items():
        update.add_column(_steps(name), types.to_type(field.type))
    if changes.moves:
        columns = without_hidden_columns(types.from_iceberg(before)).fields
        for names in _levels(columns, wanted.after.fields, "", changes):
            update.move_first(names[0])
            for one, following in itertools.pairwise(names):
                update.move_after(following, one)
    update.set_identifier_fields(*(_key(before, changes) if changes.key is None else changes.key))


def _key(before: Schema, changes: SchemaChanges) -> Iterator[str]:
    """The names of the key's columns after the changes, those inside structs included."""
    for field_id in before.identifier_field_ids:
        yield name_after(before.find_column_name(field_id) or "", changes)


def _levels(
    before: tuple[Field, ...], after: tuple[Field, ...], parent: str, changes: SchemaChanges
) -> Iterator[list[str]]:
    """The old names of the table's columns, and of each struct's fields, in their new order."""
    paths = [parent + one.name for one in before]
    kept = ((path, one) for path, one in zip(paths, before, strict=True) if path not in changes.drop)
    old = {changes.rename.get(path, one.name): (path, one) for path, one in kept}
    yield [old[one.name][0] if one.name in old else parent + one.name for one in after]
    for one in after:
        if one.name in old:
            path, was = old[one.name]
            if isinstance(was.type, Struct) and isinstance(one.type, Struct):
                yield from _levels(was.type.fields, one.type.fields, f"{path}.", changes)


def _steps(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))
