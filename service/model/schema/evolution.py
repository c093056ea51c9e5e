"""Changes of a table's columns: read from a request, checked, and applied to a schema."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from service.errors import InvalidSchema, UnknownField
from service.model.schema.definition import check_column_name, check_key, parse_field, parse_leaf
from service.model.schema.partition import PartitionField
from service.model.schema.types import ColumnType, DecimalType, Field, Struct, TableSchema, fold_case, resolve_field

Place = Literal["first", "before", "after"]
_WIDER = {("integer", "long"), ("float", "double")}


@dataclass(frozen=True)
class ColumnMove:
    """Moves a column among its siblings; all names are those after the change."""

    column: str
    place: Place
    other: str | None
    path: str


@dataclass(frozen=True)
class SchemaChanges:
    """Changes of columns, by their dotted names before the change; `key` is the new primary key, if it changes."""

    add: Mapping[str, Field] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    nullable: Mapping[str, bool] = field(default_factory=dict)
    moves: Sequence[ColumnMove] = ()
    key: tuple[str, ...] | None = None

    @property
    def any(self) -> bool:
        named = (self.add, self.rename, self.drop, self.types, self.nullable, self.moves)
        return any(named) or self.key is not None


def parse_added_columns(value: Mapping[str, Any], path: str = "add_columns") -> dict[str, Field]:
    """New columns, defined as in `fields`; dots in a name reach into structs."""
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
                f"{at} is required, but existing rows have no value for it; leave required out", field=at
            )
        found[name] = made
    return found


def parse_type_changes(value: Mapping[str, str], path: str = "change_types") -> dict[str, ColumnType]:
    return {name: parse_leaf(text, f"{path}.{name[:80]}") for name, text in value.items()}


def evolve(schema: TableSchema, changes: SchemaChanges, partition: Sequence[PartitionField]) -> TableSchema:
    """The schema after the changes; raises InvalidSchema or UnknownField.

    `partition` are the fields of every partitioning that the table has or had.
    """
    _check_named(schema, changes)
    _check_dropped(schema, changes, partition)
    for name, kind in changes.types.items():
        _check_wider(name, resolve_field(schema, name, path=f"change_types.{name[:80]}").type, kind)
    for name, nullable in changes.nullable.items():
        _check_nullable(schema, changes, name, nullable)
    fields = _rebuilt(schema.fields, "", changes, schema)
    if not fields:
        raise InvalidSchema("drop_columns names every column; a table needs at least one", field="drop_columns")
    _check_partition_names(fields, schema, changes, partition)
    key = tuple(name_after(name, changes) for name in schema.primary_key)
    if changes.key is not None:
        key = check_key(list(changes.key), fields, "primary_key")
    after = TableSchema(fields, key)
    for move in changes.moves:
        resolve_field(after, move.column, error=UnknownField, path=move.path)
        _check_not_new(move, changes)
    return after


def name_after(name: str, changes: SchemaChanges) -> str:
    """A column's dotted name after the changes, by its name before."""
    return _after(f"{name}.", changes)[:-1]


def _check_named(schema: TableSchema, changes: SchemaChanges) -> None:
    """Refuse changes of unknown columns, and changes that contradict each other."""
    for path, names in (
        ("rename_columns", changes.rename),
        ("drop_columns", changes.drop),
        ("set_nullable", changes.nullable),
    ):
        for name in names:
            resolve_field(
                schema, name, error=UnknownField, path=f"{path}.{name[:80]}" if path != "drop_columns" else path
            )
    for name, new in changes.rename.items():
        at = f"rename_columns.{name[:80]}"
        check_column_name(new, at, nested=name not in schema.names)
        if new == name.rpartition(".")[2]:
            raise InvalidSchema(f"{at}: {new!r} is already its name; choose another", field=at)
    dropped = set(changes.drop)
    if len(dropped) < len(changes.drop):
        raise InvalidSchema("drop_columns names a column twice; name each once", field="drop_columns")
    both = next((name for name in changes.drop if name in changes.add), None)
    if both is not None and changes.moves:
        raise InvalidSchema(
            f"move_columns: {both!r} is dropped and added again; move it in a second request", field="move_columns"
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


def _check_dropped(schema: TableSchema, changes: SchemaChanges, partition: Sequence[PartitionField]) -> None:
    for name in changes.drop:
        used = next((p for p in partition if p.field == name or p.field.startswith(f"{name}.")), None)
        if used is not None:
            raise InvalidSchema(
                f"drop_columns: {name!r} cannot be dropped, because the table is or was partitioned by {used.name!r}, "
                "which is made from it; copy the table by REPARTITION with target_table, and drop the column there",
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
        f"{at}: {old} cannot become {new}, because existing values would have to be rewritten; types can only grow: "
        "integer to long, float to double, decimal(p,s) to a larger p. Add a column and UPDATE it instead",
        field=at,
    )


def _check_nullable(schema: TableSchema, changes: SchemaChanges, name: str, nullable: bool) -> None:
    at = f"set_nullable.{name[:80]}"
    required = _own_field(schema.fields, name).required
    if not nullable and not required:
        raise InvalidSchema(
            f"{at}: it is nullable, and existing rows may hold nulls, so it cannot become required", field=at
        )
    key = [name_after(k, changes) for k in schema.primary_key] if changes.key is None else changes.key
    if nullable and name_after(name, changes) in key:
        raise InvalidSchema(
            f"{at}: it belongs to the primary key, which is never null; send primary_key without it too", field=at
        )


def _rebuilt(fields: tuple[Field, ...], parent: str, changes: SchemaChanges, schema: TableSchema) -> tuple[Field, ...]:
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
                    f"{at}: the column already exists; choose another name, or send two requests",
                    field=at,
                )
            made.append(new)
    if not parent:
        _check_parents(changes, schema)
    _check_distinct(made, parent)
    return tuple(_moved(made, parent, changes))


def _check_parents(changes: SchemaChanges, schema: TableSchema) -> None:
    for path in changes.add:
        above = path.rpartition(".")[0]
        if not above:
            continue
        at = f"add_columns.{path[:80]}"
        kind = resolve_field(schema, above, error=UnknownField, path=at).type
        if not isinstance(kind, Struct):
            raise InvalidSchema(f"{at}: {above!r} is {kind}, and only a struct has fields", field=at)
        if any(above == gone or above.startswith(f"{gone}.") for gone in changes.drop):
            raise InvalidSchema(f"{at}: drop_columns drops {above!r}; add to it or drop it", field=at)


def _check_distinct(fields: Sequence[Field], parent: str) -> None:
    seen: dict[str, str] = {}
    for one in fields:
        other = seen.get(fold_case(one.name))
        if other is not None:
            raise InvalidSchema(
                f"two columns would be called {parent + other!r} and {parent + one.name!r}, and Spark does not tell "
                "names apart that differ only in case; choose other names",
                field=parent + one.name,
            )
        seen[fold_case(one.name)] = one.name


def _moved(fields: list[Field], parent: str, changes: SchemaChanges) -> list[Field]:
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


def _check_not_new(move: ColumnMove, changes: SchemaChanges) -> None:
    """Refuse to move a field of a new struct: its definition orders the fields."""
    for path in changes.add:
        struct = name_after(path, changes)
        if move.column.startswith(f"{struct}."):
            raise InvalidSchema(
                f"{move.path}: {move.column!r} is inside {struct!r}, which add_columns adds; list its fields there in "
                "the order you want",
                field=move.path,
            )


def _index(move: ColumnMove, rest: list[Field], parent: str) -> int:
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
        f"{path}: {name[:80]!r} does not exist after the change; known are {', '.join(f.name for f in fields[:20])}",
        field=path,
    )


def _split(name: str) -> tuple[str, str, str]:
    return name.rpartition(".")


def _after(parent: str, changes: SchemaChanges) -> str:
    """A struct's dotted name after the changes, by its name before; both end with a dot."""
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
    fields: tuple[Field, ...], schema: TableSchema, changes: SchemaChanges, partition: Sequence[PartitionField]
) -> None:
    """Refuse a column with the name of a partition, unless that is the column's own identity."""
    own = {p.name: replace(p, field=changes.rename.get(p.field, p.field)) for p in partition}
    before = set(schema.names)
    for one in fields:
        for name, part in own.items():
            is_its = part.transform == "identity" and part.field == one.name == name
            if fold_case(name) == fold_case(one.name) and not is_its and one.name not in before - set(changes.drop):
                raise InvalidSchema(
                    f"{one.name!r} is the name of a partition of the table; choose another name", field=one.name
                )
