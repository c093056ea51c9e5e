"""Changes of a table's columns: parse them from a request, check them, and apply them to a schema."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from service.errors import InvalidSchema, UnknownField
from service.model.schema.definition import check_column_name, check_key, parse_field, parse_leaf, refuse_same_names
from service.model.schema.partition import PartitionField
from service.model.schema.types import ColumnType, DecimalType, Field, Struct, TableSchema, fold_case, resolve_field

_WIDER = {("integer", "long"), ("float", "double")}
_AFTERWARDS = "a column after the change"


@dataclass(frozen=True)
class ColumnMove:
    """Moves a column among its siblings; all names are those after the change."""

    column: str
    place: Literal["first", "before", "after"]
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
    """New columns, defined as in `fields`; dots in a name address fields of structs."""
    added = {}
    for name, definition in value.items():
        *parents, last = name.split(".")
        at = f"{path}.{name[:80]}"
        if "" in parents:
            raise InvalidSchema.at(at, "a name before a dot is empty; write `column` or `struct.field`")
        added[name] = parse_field(last, definition, path, at, nested=bool(parents))
        if added[name].required:
            raise InvalidSchema.at(at, "a new column cannot be required, as existing rows have no value; omit required")
    return added


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
        raise InvalidSchema.at("drop_columns", "a table needs at least one column; keep one")
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
    """A column's dotted name after the changes, given its name before."""
    steps = name.split(".")
    return ".".join(changes.rename.get(".".join(steps[: n + 1]), step) for n, step in enumerate(steps))


def _check_named(schema: TableSchema, changes: SchemaChanges) -> None:
    """Refuse changes of unknown columns, and changes that contradict each other."""
    by_path = {"rename_columns": changes.rename, "change_types": changes.types, "set_nullable": changes.nullable}
    for path, names in by_path.items():
        for name in names:
            resolve_field(schema, name, error=UnknownField, path=f"{path}.{name[:80]}")
            if _is_dropped(name, changes):
                raise InvalidSchema.at(f"{path}.{name[:80]}", "drop_columns drops it; either change it or drop it")
    for name, new in changes.rename.items():
        at = f"rename_columns.{name[:80]}"
        check_column_name(new, at, nested=name not in schema.names)
        if new == name.rpartition(".")[2]:
            raise InvalidSchema.at(at, f"{new!r} is already its name; choose another")


def _check_dropped(schema: TableSchema, changes: SchemaChanges, partition: Sequence[PartitionField]) -> None:
    path = "drop_columns"
    if len(set(changes.drop)) < len(changes.drop):
        raise InvalidSchema.at(path, "a column is named twice; name each column once")
    for name in changes.drop:
        resolve_field(schema, name, error=UnknownField, path=path)
        if name in changes.add and changes.moves:
            raise InvalidSchema.at("move_columns", f"{name!r} is dropped and added; move it in a second request")
        parent = next((other for other in changes.drop if name.startswith(f"{other}.")), None)
        if parent is not None:
            raise InvalidSchema.at(path, f"{name!r} is dropped with {parent!r}; name only that")
        used = next((p for p in partition if p.field == name or p.field.startswith(f"{name}.")), None)
        if used is not None:
            raise InvalidSchema.at(
                path,
                f"{name!r} cannot be dropped, because the table is or was partitioned by {used.name!r}, which is "
                "computed from it; copy the table by REPARTITION with target_table, and drop the column there",
            )
        if name in schema.primary_key and changes.key is None:
            raise InvalidSchema.at(path, f"{name!r} belongs to the primary key; send primary_key without it too")


def _is_dropped(name: str, changes: SchemaChanges) -> bool:
    return any(name == dropped or name.startswith(f"{dropped}.") for dropped in changes.drop)


def _check_wider(name: str, old: ColumnType, new: ColumnType) -> None:
    if old == new or (str(old), str(new)) in _WIDER:
        return
    problem = f"{old} cannot become {new}"
    at = f"change_types.{name[:80]}"
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        if old.scale == new.scale and new.precision > old.precision:
            return
        raise InvalidSchema.at(at, f"{problem}; only the precision of a decimal can grow, its scale cannot change")
    raise InvalidSchema.at(
        at,
        f"{problem}, because existing values would have to be rewritten; types can only grow: integer to long, float "
        "to double, decimal(p,s) to a larger p. Add a column and UPDATE it instead",
    )


def _check_nullable(schema: TableSchema, changes: SchemaChanges, name: str, nullable: bool) -> None:
    at = f"set_nullable.{name[:80]}"
    parent, _, last = ("", "", name) if name in schema.names else name.rpartition(".")
    struct = resolve_field(schema, parent).type if parent else Struct(schema.fields)
    required = isinstance(struct, Struct) and any(f.name == last and f.required for f in struct.fields)
    if not nullable and not required:
        raise InvalidSchema.at(at, "existing rows may contain nulls, so a nullable column cannot become required")
    key = [name_after(k, changes) for k in schema.primary_key] if changes.key is None else changes.key
    if nullable and name_after(name, changes) in key:
        raise InvalidSchema.at(
            at, "it belongs to the primary key, which is never null; send primary_key without it too"
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
                raise InvalidSchema.at("drop_columns", f"{path!r} would have no fields left; drop it as a whole")
        required = one.required and not changes.nullable.get(path, False)
        made.append(Field(changes.rename.get(path, one.name), kind, required))
    for path, new in changes.add.items():
        above, dot, _ = path.rpartition(".")
        if above + dot == parent:
            if new.name in (one.name for one in fields) and path not in changes.drop:
                problem = "the column already exists; choose another name, or send two requests"
                raise InvalidSchema.at(f"add_columns.{path[:80]}", problem)
            made.append(new)
    if not parent:
        _check_parents(changes, schema)
    refuse_same_names((one.name for one in made), parent)
    return tuple(_moved(made, name_after(parent, changes), changes))


def _check_parents(changes: SchemaChanges, schema: TableSchema) -> None:
    for path in changes.add:
        parent = path.rpartition(".")[0]
        if not parent:
            continue
        at = f"add_columns.{path[:80]}"
        kind = resolve_field(schema, parent, error=UnknownField, path=at).type
        if not isinstance(kind, Struct):
            raise InvalidSchema.at(at, f"{parent!r} is {kind}, but only a struct has fields; name a struct")
        if _is_dropped(parent, changes):
            raise InvalidSchema.at(at, f"drop_columns drops {parent!r}; either add to it or drop it")


def _moved(fields: list[Field], parent: str, changes: SchemaChanges) -> list[Field]:
    """The fields of a struct in their new order; `parent` is its name after the changes, with a dot at the end."""
    for move in changes.moves:
        above, dot, last = move.column.rpartition(".")
        if above + dot != parent:
            continue
        one = next((f for f in fields if f.name == last), None)
        if one is None:
            raise UnknownField.unknown(move.path, move.column, _AFTERWARDS, [f.name for f in fields])
        rest = [f for f in fields if f is not one]
        index = _index(move, [f.name for f in rest], parent)
        fields = [*rest[:index], one, *rest[index:]]
    return fields


def _check_not_new(move: ColumnMove, changes: SchemaChanges) -> None:
    """Refuse to move a field of a new struct: its definition orders the fields."""
    for path in changes.add:
        struct = name_after(path, changes)
        if move.column.startswith(f"{struct}."):
            raise InvalidSchema.at(
                move.path,
                f"{move.column!r} is inside {struct!r}, which add_columns adds; list its fields there in the order you "
                "want",
            )


def _index(move: ColumnMove, names: list[str], parent: str) -> int:
    """The new index of the moved column among its siblings."""
    if move.place == "first":
        return 0
    if move.other == move.column:
        raise InvalidSchema.at(move.path, f"{move.column!r} cannot move beside itself; name another column")
    other = move.other or ""
    above, dot, last = other.rpartition(".")
    if above + dot != parent or last not in names:
        raise UnknownField.unknown(f"{move.path}.{move.place}", other, _AFTERWARDS, names)
    return names.index(last) + (move.place == "after")


def _check_partition_names(
    fields: tuple[Field, ...], schema: TableSchema, changes: SchemaChanges, partition: Sequence[PartitionField]
) -> None:
    """Refuse a new column name that is the name of a partition, unless it is the partition by the column itself."""
    kept = set(schema.names) - set(changes.drop)
    for one in fields:
        for part in partition:
            source = changes.rename.get(part.field, part.field)
            is_own = part.transform == "identity" and source == one.name == part.name
            if fold_case(part.name) == fold_case(one.name) and not is_own and one.name not in kept:
                problem = f"{one.name!r} is the name of a partition of the table; choose another name"
                raise InvalidSchema(problem, field=one.name)
