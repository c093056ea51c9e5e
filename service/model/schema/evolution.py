"""What may become of a table's columns: changes of its schema, read from a request, checked, and worked out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from service.errors import InvalidSchema, UnknownField
from service.partition import PartitionField
from service.schema import (
    ColumnType,
    DecimalType,
    Field,
    Struct,
    TableSchema,
    check_column_name,
    check_key,
    folded,
    parse_field,
    parse_leaf,
    resolve,
)

Place = Literal["first", "before", "after"]
_WIDER = {("integer", "long"), ("float", "double")}


@dataclass(frozen=True)
class Move:
    """A column, and where it goes among its siblings; both by the names they have after the change."""

    column: str
    place: Place
    other: str | None
    path: str


@dataclass(frozen=True)
class Changes:
    """Changes of columns, by the dotted names they have before; `key` is the new primary key, if there is to be one."""

    add: Mapping[str, Field] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    nullable: Mapping[str, bool] = field(default_factory=dict)
    moves: Sequence[Move] = ()
    key: tuple[str, ...] | None = None

    @property
    def any(self) -> bool:
        named = (self.add, self.rename, self.drop, self.types, self.nullable, self.moves)
        return any(named) or self.key is not None


def parse_added(value: Mapping[str, Any], path: str = "add_columns") -> dict[str, Field]:
    """New columns as `fields` has them; dots reach into structs."""
    found = {}
    for name, definition in value.items():
        *above, last = name.split(".")
        at = f"{path}.{name[:80]}"
        if "" in above:
            raise InvalidSchema(
                f"{at}: there is no name before a dot; write `column`, or `struct.field` for a field of a struct",
                field=at,
            )
        made = parse_field(last, definition, path, at, nested=bool(above))
        if made.required:
            raise InvalidSchema(
                f"{at} is required, but rows that are there have no value for it; leave required out", field=at
            )
        found[name] = made
    return found


def parse_types(value: Mapping[str, str], path: str = "change_types") -> dict[str, ColumnType]:
    return {name: parse_leaf(text, f"{path}.{name[:80]}") for name, text in value.items()}


def evolved(schema: TableSchema, changes: Changes, partition: Sequence[PartitionField]) -> TableSchema:
    """A table's schema after changes of it; InvalidSchema or UnknownField says what cannot be, and why.

    `partition` are the fields of every partitioning that the table has had.
    """
    _check_named(schema, changes)
    _check_dropped(schema, changes, partition)
    for name, kind in changes.types.items():
        _check_wider(name, resolve(schema, name, path=f"change_types.{name[:80]}").type, kind)
    for name, nullable in changes.nullable.items():
        _check_nullable(schema, changes, name, nullable)
    fields = _rebuilt(schema.fields, "", changes, schema)
    if not fields:
        raise InvalidSchema("drop_columns names every column; a table has at least one", field="drop_columns")
    _check_partition_names(fields, schema, changes, partition)
    key = tuple(renamed(name, changes) for name in schema.primary_key)
    if changes.key is not None:
        key = check_key(list(changes.key), fields, "primary_key")
    after = TableSchema(fields, key)
    for move in changes.moves:
        resolve(after, move.column, error=UnknownField, path=move.path)
        _check_not_new(move, changes)
    return after


def renamed(name: str, changes: Changes) -> str:
    """What a column is called after the changes, by its dotted name before."""
    return _after(f"{name}.", changes)[:-1]


def _check_named(schema: TableSchema, changes: Changes) -> None:
    """Every column that is to be changed is there, and is changed in ways that go together."""
    for path, names in (
        ("rename_columns", changes.rename),
        ("drop_columns", changes.drop),
        ("set_nullable", changes.nullable),
    ):
        for name in names:
            resolve(schema, name, error=UnknownField, path=f"{path}.{name[:80]}" if path != "drop_columns" else path)
    for name, new in changes.rename.items():
        at = f"rename_columns.{name[:80]}"
        check_column_name(new, at, nested=name not in schema.names)
        if new == name.rpartition(".")[2]:
            raise InvalidSchema(f"{at}: {new!r} is its name already; choose another", field=at)
    dropped = set(changes.drop)
    if len(dropped) < len(changes.drop):
        raise InvalidSchema("drop_columns names a column twice; name each once", field="drop_columns")
    both = next((name for name in changes.drop if name in changes.add), None)
    if both is not None and changes.moves:
        raise InvalidSchema(
            f"move_columns: {both!r} is dropped and added anew; move it after that", field="move_columns"
        )
    for name in changes.drop:
        above = next((other for other in dropped if name.startswith(f"{other}.")), None)
        if above is not None:
            raise InvalidSchema(f"drop_columns: {name!r} goes with {above!r}; name only that", field="drop_columns")
    for path, others in (
        ("rename_columns", changes.rename),
        ("change_types", changes.types),
        ("set_nullable", changes.nullable),
    ):
        for name in others:
            if any(name == gone or name.startswith(f"{gone}.") for gone in dropped):
                at = f"{path}.{name[:80]}"
                raise InvalidSchema(f"{at}: drop_columns drops it; change it or drop it", field=at)


def _check_dropped(schema: TableSchema, changes: Changes, partition: Sequence[PartitionField]) -> None:
    for name in changes.drop:
        used = next((p for p in partition if p.field == name or p.field.startswith(f"{name}.")), None)
        if used is not None:
            raise InvalidSchema(
                f"drop_columns: {name!r} cannot go, because the table is, or was, partitioned by {used.name!r}, which "
                "is made of it; make a new table without it by REPARTITION with target_table, and drop it there",
                field="drop_columns",
            )
        if name in schema.primary_key and changes.key is None:
            raise InvalidSchema(
                f"drop_columns: {name!r} belongs to the primary key; send primary_key without it too",
                field="drop_columns",
            )


def _check_wider(name: str, old: ColumnType, new: ColumnType) -> None:
    if old == new or (str(old), str(new)) in _WIDER:
        return
    at = f"change_types.{name[:80]}"
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        if old.scale == new.scale and new.precision > old.precision:
            return
        raise InvalidSchema(
            f"{at}: {old} cannot become {new}; a decimal's precision can grow, and its scale stays", field=at
        )
    raise InvalidSchema(
        f"{at}: {old} cannot become {new}, because values that are there would have to be written anew; types can only "
        "grow: integer to long, float to double, decimal(p,s) to a larger p. Add a column and UPDATE it instead",
        field=at,
    )


def _check_nullable(schema: TableSchema, changes: Changes, name: str, nullable: bool) -> None:
    at = f"set_nullable.{name[:80]}"
    required = _own_field(schema.fields, name).required
    if not nullable and not required:
        raise InvalidSchema(
            f"{at}: it may hold nulls, and rows that are there may have some, so it cannot become required", field=at
        )
    key = [renamed(k, changes) for k in schema.primary_key] if changes.key is None else changes.key
    if nullable and renamed(name, changes) in key:
        raise InvalidSchema(
            f"{at}: it belongs to the primary key, which is never null; send primary_key without it too", field=at
        )


def _rebuilt(fields: tuple[Field, ...], parent: str, changes: Changes, schema: TableSchema) -> tuple[Field, ...]:
    """The fields of one struct, or the table's columns, after the changes."""
    made: list[Field] = []
    for one in fields:
        path = parent + one.name
        if path in changes.drop:
            continue
        kind = changes.types.get(path, one.type)
        if isinstance(kind, Struct):
            kind = Struct(_rebuilt(kind.fields, f"{path}.", changes, schema))
            if not kind.fields:
                raise InvalidSchema(f"drop_columns leaves {path!r} without fields; drop it whole", field="drop_columns")
        required = one.required and not changes.nullable.get(path, False)
        made.append(Field(changes.rename.get(path, one.name), kind, required))
    for path, new in changes.add.items():
        above, dot, _ = path.rpartition(".")
        if above + dot == parent:
            if new.name in (one.name for one in fields) and path not in changes.drop:
                at = f"add_columns.{path[:80]}"
                raise InvalidSchema(
                    f"{at}: there is such a column already; choose another name, or send one request after the other",
                    field=at,
                )
            made.append(new)
    if not parent:
        _check_parents(changes, schema)
    _check_distinct(made, parent)
    return tuple(_moved(made, parent, changes))


def _check_parents(changes: Changes, schema: TableSchema) -> None:
    for path in changes.add:
        above = path.rpartition(".")[0]
        if not above:
            continue
        at = f"add_columns.{path[:80]}"
        kind = resolve(schema, above, error=UnknownField, path=at).type
        if not isinstance(kind, Struct):
            raise InvalidSchema(f"{at}: {above!r} is {kind}, and only a struct has fields", field=at)
        if any(above == gone or above.startswith(f"{gone}.") for gone in changes.drop):
            raise InvalidSchema(f"{at}: drop_columns drops {above!r}; add to it or drop it", field=at)


def _check_distinct(fields: Sequence[Field], parent: str) -> None:
    seen: dict[str, str] = {}
    for one in fields:
        other = seen.get(folded(one.name))
        if other is not None:
            raise InvalidSchema(
                f"two columns would be called {parent + other!r} and {parent + one.name!r}, and Spark tells names that "
                "differ only in case apart as little as equal ones; choose other names",
                field=parent + one.name,
            )
        seen[folded(one.name)] = one.name


def _moved(fields: list[Field], parent: str, changes: Changes) -> list[Field]:
    for move in changes.moves:
        above, dot, last = _split(move.column)
        if above + dot != _after(parent, changes):
            continue
        one = next((f for f in fields if f.name == last), None)
        if one is None:
            raise _no_column(move.path, move.column, fields)
        rest = [f for f in fields if f is not one]
        fields = [*rest[: (at := _index(move, rest, above + dot))], one, *rest[at:]]
    return fields


def _check_not_new(move: Move, changes: Changes) -> None:
    """What is inside a struct that is added stands where its definition has it."""
    for path in changes.add:
        struct = renamed(path, changes)
        if move.column.startswith(f"{struct}."):
            raise InvalidSchema(
                f"{move.path}: {move.column!r} is inside {struct!r}, which add_columns adds; list its fields there in "
                "the order that they are to have",
                field=move.path,
            )


def _index(move: Move, rest: list[Field], parent: str) -> int:
    if move.place == "first":
        return 0
    other = move.other or ""
    above, dot, last = _split(other)
    names = [f.name for f in rest]
    if above + dot != parent or last not in names:
        if move.other == move.column:
            raise InvalidSchema(f"{move.path}: {move.column!r} cannot move beside itself", field=move.path)
        raise _no_column(f"{move.path}.{move.place}", other, rest)
    return names.index(last) + (move.place == "after")


def _no_column(path: str, name: str, fields: Sequence[Field]) -> UnknownField:
    return UnknownField(
        f"{path}: {name[:80]!r} is not there after the change; beside it are {', '.join(f.name for f in fields[:20])}",
        field=path,
    )


def _split(name: str) -> tuple[str, str, str]:
    return name.rpartition(".")


def _after(parent: str, changes: Changes) -> str:
    """A struct's dotted name after the changes, by the one before."""
    steps, seen = [], ""
    for step in parent.split(".")[:-1]:
        seen += step
        steps.append(changes.rename.get(seen, step))
        seen += "."
    return "".join(f"{step}." for step in steps)


def _own_field(fields: tuple[Field, ...], name: str) -> Field:
    whole = next((f for f in fields if f.name == name), None)
    if whole is not None:
        return whole
    first, _, rest = name.partition(".")
    found = next(f for f in fields if f.name == first)
    assert isinstance(found.type, Struct)
    return _own_field(found.type.fields, rest)


def _check_partition_names(
    fields: tuple[Field, ...], schema: TableSchema, changes: Changes, partition: Sequence[PartitionField]
) -> None:
    """No column may have the name of a partition, unless that is the column's own value."""
    own = {p.name: replace(p, field=changes.rename.get(p.field, p.field)) for p in partition}
    before = set(schema.names)
    for one in fields:
        for name, part in own.items():
            is_its = part.transform == "identity" and part.field == one.name == name
            if folded(name) == folded(one.name) and not is_its and one.name not in before - set(changes.drop):
                raise InvalidSchema(
                    f"{one.name!r} is what a partition of the table is called; choose another name", field=one.name
                )
