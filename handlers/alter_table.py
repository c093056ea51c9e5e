"""ALTER_TABLE: change a table's columns and properties in one commit of its metadata."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.catalog.alter import Alteration, alter
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.errors import InvalidRequest, InvalidSchema, nearest
from service.maintenance.advise.auto import Auto
from service.maintenance.policy import TARGET, check_policy
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.model.policy.policy import check_columns
from service.model.properties import (
    COMMENT,
    ONLINE,
    TableProperties,
    changed_properties,
    compaction_policy,
    property_names,
    unset_properties,
)
from service.model.schema.columns import known_names
from service.model.schema.definition import describe_schema
from service.model.schema.derived import DERIVED_PREFIX, check_evolved
from service.model.schema.evolution import ColumnMove, SchemaChanges, evolve, parse_added_columns, parse_type_changes
from service.model.schema.ranges import RANGES_PROPERTY, ranges_of
from service.model.schema.types import TableSchema
from service.operations.examples import create_table, response
from service.operations.operation import ChangeRequest, Example, Result, operation
from service.settings import IcebergSettings
from service.tables.life import TableLifecycle

OPERATION = "ALTER_TABLE"
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "customers"}
CREATE = create_table(ADDRESS, {"id": "integer", "nme": "string", "fax": "string"}, required=["id"], primary_key=["id"])
EXAMPLES = (
    Example(
        "Rename a column, widen a type, add a column in its place, and drop one",
        {
            "operation": "ALTER_TABLE",
            **ADDRESS,
            "rename_columns": {"nme": "name"},
            "change_types": {"id": "long"},
            "add_columns": {"email": {"type": "string"}},
            "move_columns": [{"column": "email", "after": "id"}],
            "drop_columns": ["fax"],
            "set_properties": {"compression": "zstd"},
            "description": "who buys",
        },
        response(
            snapshot=False,
            table_altered=True,
            schema={
                "fields": {
                    "id": {"type": "long", "required": True},
                    "email": {"type": "string", "required": False},
                    "name": {"type": "string", "required": False},
                },
                "primary_key": ["id"],
            },
        ),
        given=(CREATE,),
    ),
)
_COLUMNS = ("add_columns", "rename_columns", "drop_columns", "move_columns", "change_types", "set_nullable")


class MoveColumn(BaseModel):
    """A new position for a column, among the columns or within its struct."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    column: str = Field(description="the column's name after this request; dots reach into structs")
    first: bool = Field(default=False, description="move it before all others")
    before: str | None = Field(default=None, description="move it directly before this one")
    after: str | None = Field(default=None, description="move it directly after this one")


class AlterTable(ChangeRequest):
    """At least one change; all of them are made in one commit, or none is."""

    operation: Literal["ALTER_TABLE"]
    add_columns: dict[str, Any] | None = Field(
        default=None, description="as `fields` in CREATE_TABLE; new columns are nullable; `home.zip` adds to a struct"
    )
    rename_columns: dict[str, str] | None = Field(default=None, description='{"old name": "new name"}')
    drop_columns: list[str] | None = Field(default=None, description="columns to drop")
    move_columns: list[MoveColumn] | None = Field(default=None, description="moves, made one after the other")
    change_types: dict[str, str] | None = Field(
        default=None, description='{"column": "type"}: integer to long, float to double, decimal(p,s) to a larger p'
    )
    set_nullable: dict[str, bool] | None = Field(default=None, description='{"column": true} makes it nullable')
    set_properties: TableProperties | None = Field(
        default=None, description="as `properties` in CREATE_TABLE; omitted ones keep their values"
    )
    unset_properties: list[str] | None = Field(
        default=None, description="properties to reset to the service's settings, such as `compaction.mode`"
    )
    description: str | None = Field(
        default=None, max_length=4000, description="the table's purpose; empty to remove it"
    )
    primary_key: list[str] | None = Field(default=None, description="required columns; [] removes the key")


class AlterTableResult(Result):
    table_altered: bool = Field(description="true")
    schema_: dict[str, Any] = Field(serialization_alias="schema", description="the table's schema now")


@operation(AlterTable, AlterTableResult, pool="tables", examples=EXAMPLES)
def alter_table(
    request: AlterTable,
    call: Call,
    settings: IcebergSettings,
    catalog: Catalog,
    commits: Commits,
    auto: Auto,
    life: TableLifecycle,
) -> AlterTableResult:
    """Change a table's columns, types, properties and key in one commit, without rewriting data files."""
    changes, properties = _changes(request), _properties(request, settings)
    if not changes.any and not properties:
        wanted = [*_COLUMNS, "set_properties", "unset_properties", "description", "primary_key"]
        raise InvalidRequest(f"there is nothing to change; send one or more of {', '.join(wanted)}")
    table = commits.table(request.table_name, call)
    if changes.any:
        refuse_dynamic_table(table.properties, table.name.table, "a change of its columns")
    decide = partial(_decide, request, settings, changes, properties)

    def change(current: Table, batch: str) -> Table:
        return alter(catalog, current, batch, decide, lambda: commits.must_be_ours(batch))

    with life.recording_online(table, _online(properties)):
        after = commits.alter(table, OPERATION, call, change)
    auto.policy_changed(table.name)
    return AlterTableResult(table_altered=True, schema_=describe_schema(after.schema))


def _online(properties: Mapping[str, str | None]) -> bool | None:
    """Whether the table is online after the request; None if the request leaves it as it is."""
    return properties[ONLINE] is None if ONLINE in properties else None


def _changes(request: AlterTable) -> SchemaChanges:
    return SchemaChanges(
        parse_added_columns(request.add_columns or {}),
        request.rename_columns or {},
        request.drop_columns or (),
        parse_type_changes(request.change_types or {}),
        request.set_nullable or {},
        [_move(move, f"move_columns[{i}]") for i, move in enumerate(request.move_columns or ())],
        None if request.primary_key is None else tuple(request.primary_key),
    )


def _move(move: MoveColumn, path: str) -> ColumnMove:
    places = {"first": move.first or None, "before": move.before, "after": move.after}
    given = [place for place, value in places.items() if value is not None]
    if len(given) != 1:
        raise InvalidRequest(f"{path} needs one of first: true, before and after", field=path)
    place = given[0]
    return ColumnMove(move.column, place, None if place == "first" else str(places[place]), path)  # type: ignore[arg-type]  # a key of places


def _properties(request: AlterTable, settings: IcebergSettings) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for i, name in enumerate(request.unset_properties or ()):
        gone = unset_properties(name, settings)
        if gone is None:
            near = nearest(name, property_names())
            hint = f"did you mean {near!r}?" if near else f"valid names are {', '.join(property_names())}"
            path = f"unset_properties[{i}]"
            raise InvalidRequest(f"{path}: {name[:80]!r} is not a known property; {hint}", field=path, suggestion=near)
        found |= gone
    if request.set_properties is not None:
        wanted = changed_properties(request.set_properties, settings)
        both = next(iter(wanted.keys() & found.keys()), None)
        if both is not None:
            raise InvalidRequest("unset_properties and set_properties name the same property", field="unset_properties")
        found |= wanted
    if request.description is not None:
        if COMMENT in found:
            raise InvalidRequest(
                "description is sent twice, as a field and as a property; send it once", field="description"
            )
        found[COMMENT] = request.description or None
    return found


def _decide(
    request: AlterTable,
    settings: IcebergSettings,
    changes: SchemaChanges,
    properties: Mapping[str, str | None],
    table: Table,
) -> Alteration:
    after = evolve(table.schema, changes, table.past_partition) if changes.any else table.schema
    check_evolved(table.properties, table.schema, after)
    if changes.any:
        check_columns(table.properties, after, (*changes.drop, *changes.rename))
    changed = {**properties, **_derived(table, changes), **_ranges(table, changes, after)}
    kept = {name: value for name, value in {**table.properties, **changed}.items() if value is not None}
    _check_sorted(table, after, kept, settings)
    given = request.set_properties or TableProperties()
    named = given.model_fields_set | given.compaction.model_fields_set
    check_policy(kept, settings, after, named, _where, table.partition)
    return Alteration(changes, after, changed)


def _derived(table: Table, changes: SchemaChanges) -> dict[str, str | None]:
    """New properties for the expressions of derived columns that are dropped or renamed."""
    found: dict[str, str | None] = {}
    for name in (*changes.drop, *changes.rename):
        if DERIVED_PREFIX + name in table.properties:
            found[DERIVED_PREFIX + name] = None
    for name, new in changes.rename.items():
        if DERIVED_PREFIX + name in table.properties:
            found[DERIVED_PREFIX + new] = table.properties[DERIVED_PREFIX + name]
    return found


def _ranges(table: Table, changes: SchemaChanges, after: TableSchema) -> dict[str, str | None]:
    """New properties for the ranges that split the table, if their column is renamed or widened."""
    ranges = ranges_of(table.properties)
    if ranges is None:
        return {}
    if ranges.column in changes.drop:
        raise InvalidSchema(
            f"drop_columns: the table is split by ranges of {ranges.column!r}; REINITIALISE_TABLE with "
            "delete_partitions: true empties it and removes them",
            field="drop_columns",
        )
    column = after.field(changes.rename.get(ranges.column, ranges.column))
    same = (column.name, column.type) == (ranges.column, ranges.type)
    return {} if same else {RANGES_PROPERTY: ranges.of(column.name, column.type).text}


def _check_sorted(table: Table, after: TableSchema, kept: Mapping[str, str], settings: IcebergSettings) -> None:
    names = known_names(after)
    for name in compaction_policy(kept, settings.compaction).sort_by:
        if name not in names and name in known_names(table.schema):
            raise InvalidSchema(
                f"compactions of the table sort by {name!r}; send SET_COMPACTION with another sort_by first", field=name
            )


def _where(name: str) -> str:
    return f"set_properties.{name}" if name == TARGET else f"set_properties.compaction.{name}"
