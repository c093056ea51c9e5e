"""A table's columns and properties changed in one commit of its metadata: all of it, or none."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.schema import UpdateSchema

from service.catalog import types
from service.catalog.tables import Catalog, Table
from service.errors import InvalidSchema
from service.evolution import Changes
from service.names import CHANGES_PROPERTY
from service.schema import Field, Struct, TableSchema, visible

# The table says of so many of its last changes that they happened.
_REMEMBERED = 20


@dataclass(frozen=True)
class Alteration:
    """What is to become of a table: its columns, then as `after` says, and its properties; None removes one."""

    changes: Changes
    after: TableSchema
    properties: Mapping[str, str | None]


def alter(
    catalog: Catalog,
    table: Table,
    batch: str,
    decide: Callable[[Table], Alteration],
    leave: Callable[[], object] = lambda: None,
) -> Table:
    """Change a table as `decide` says, given its newest metadata, however often others commit meanwhile.

    The commit is built on the newest snapshot, and `leave` is asked after that: whoever takes the batch over gives the
    table another one.
    """

    def change(current: IcebergTable) -> None:
        wanted = decide(Table(table.name, current))
        properties = {**wanted.properties, CHANGES_PROPERTY: _remembered(current, batch)}
        new = {key: value for key, value in properties.items() if value is not None}
        gone = [key for key, value in properties.items() if value is None and key in current.properties]
        leave()
        with current.transaction() as transaction:
            head = current.metadata.current_snapshot_id
            transaction._apply((), (AssertRefSnapshotId(ref="main", snapshot_id=head),))
            if wanted.changes.any:
                update = transaction.update_schema()
                _stage(update, wanted, visible(types.from_iceberg(current.schema())))
                if visible(types.from_iceberg(update._apply())) != wanted.after:
                    raise InvalidSchema("these changes do not go together; send them one after the other")
                update.commit()
            transaction.set_properties(new).remove_properties(*gone)

    return catalog.patiently(table, change)


def happened(table: Table, batch: str) -> bool:
    """Whether a table says of a batch that it changed it."""
    return batch in table.properties.get(CHANGES_PROPERTY, "").split(",")


def _remembered(current: IcebergTable, batch: str) -> str:
    known = [one for one in current.properties.get(CHANGES_PROPERTY, "").split(",") if one and one != batch]
    return ",".join([*known, batch][-_REMEMBERED:])


def _stage(update: UpdateSchema, wanted: Alteration, before: TableSchema) -> None:
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
        for names in _levels(before.fields, wanted.after.fields, "", changes):
            update.move_first(names[0])
            for one, following in itertools.pairwise(names):
                update.move_after(following, one)
    if changes.key is not None:
        update.set_identifier_fields(*changes.key)


def _levels(before: tuple[Field, ...], after: tuple[Field, ...], parent: str, changes: Changes) -> Iterator[list[str]]:
    """The columns of the table, and the fields of each struct, in their new order by their old names."""
    paths = [parent + one.name for one in before]
    old = {changes.rename.get(path, one.name): (path, one) for path, one in zip(paths, before, strict=True)}
    old = {name: found for name, found in old.items() if found[0] not in changes.drop}
    yield [old[one.name][0] if one.name in old else parent + one.name for one in after]
    for one in after:
        if one.name in old:
            path, was = old[one.name]
            if isinstance(was.type, Struct) and isinstance(one.type, Struct):
                yield from _levels(was.type.fields, one.type.fields, f"{path}.", changes)


def _steps(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))
