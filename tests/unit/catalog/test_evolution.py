"""Changes of columns: what may be, what is refused and why, and that PyIceberg makes of a table what we say it will."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

from service.catalog.alter import Alteration, alter, altered_by
from service.catalog.connect import connect
from service.catalog.tables import Catalog, Table
from service.errors import FirnError, InvalidSchema, UnknownField
from service.model.names import TableName
from service.model.schema.definition import describe_schema, parse_schema
from service.model.schema.evolution import ColumnMove, SchemaChanges, evolve, parse_added_columns, parse_type_changes
from service.model.schema.partition import PartitionField, parse_partition
from service.model.schema.types import Struct, TableSchema
from service.settings import load

NAME = TableName("acme", "shop", "t")
FIELDS: dict[str, Any] = {
    "id": {"type": "integer", "required": True},
    "name": {"type": "string"},
    "price": {"type": "decimal(10,2)"},
    "ratio": {"type": "float", "required": True},
    "home": {"type": "struct", "fields": {"city": {"type": "string"}, "floor": {"type": "integer"}}},
    "tags": {"type": "array", "items": "string"},
    "day": {"type": "date"},
}
WORK = {"type": "struct", "fields": {"desk": {"type": "long"}, "pay": {"type": "long"}}}
SCHEMA = parse_schema({"fields": FIELDS, "primary_key": ["id"]})
PARTITION = parse_partition({"partitions": [{"field": "day", "transform": "month"}]}, SCHEMA)


def changes(**said: Any) -> SchemaChanges:
    """Changes as a request says them."""
    moves = [
        ColumnMove(m[0], m[1], m[2] if len(m) > 2 else None, f"move_columns[{i}]")
        for i, m in enumerate(said.pop("moves", ()))
    ]
    added, types = parse_added_columns(said.pop("add", {})), parse_type_changes(said.pop("types", {}))
    return SchemaChanges(add=added, types=types, moves=moves, **said)


def after(**said: Any) -> dict[str, Any]:
    return describe_schema(evolve(SCHEMA, changes(**said), PARTITION))


def refused(kind: type[FirnError] = InvalidSchema, **said: Any) -> FirnError:
    with pytest.raises(kind) as refusal:
        after(**said)
    return refusal.value


class TestWhatMayBe:
    def test_columns_are_added_at_the_end_and_inside_structs(self) -> None:
        made = after(add={"email": {"type": "string"}, "home.zip": {"type": "string"}})["fields"]
        assert list(made) == [*FIELDS, "email"]
        assert list(made["home"]["fields"]) == ["city", "floor", "zip"]

    def test_a_renamed_column_keeps_its_place_and_the_key_knows_it(self) -> None:
        made = after(rename={"id": "number", "home.city": "town"})
        assert next(iter(made["fields"])) == "number"
        assert made["primary_key"] == ["number"]
        assert list(made["fields"]["home"]["fields"]) == ["town", "floor"]

    def test_fields_of_structs_may_be_called_as_metadata_columns(self) -> None:
        made = after(add={"home._file": {"type": "string"}}, rename={"home.city": "_pos"})["fields"]["home"]["fields"]
        assert list(made) == ["_pos", "floor", "_file"]

    def test_two_columns_can_change_names(self) -> None:
        made = after(rename={"name": "price", "price": "name"})["fields"]
        assert made["price"]["type"] == "string"
        assert made["name"]["type"] == "decimal(10,2)"

    def test_types_grow(self) -> None:
        made = after(types={"id": "long", "ratio": "double", "price": "decimal(12,2)", "home.floor": "long"})["fields"]
        assert [made[name]["type"] for name in ("id", "ratio", "price")] == ["long", "double", "decimal(12,2)"]
        assert made["home"]["fields"]["floor"]["type"] == "long"

    def test_a_required_column_may_be_null_from_then_on(self) -> None:
        assert after(nullable={"ratio": True})["fields"]["ratio"]["required"] is False

    def test_columns_move_by_the_names_they_have_then(self) -> None:
        made = after(
            rename={"name": "who"},
            add={"email": {"type": "string"}},
            drop=["tags"],
            moves=[("who", "first"), ("email", "after", "who"), ("id", "before", "day"), ("home.floor", "first")],
        )["fields"]
        assert list(made) == ["who", "email", "price", "ratio", "home", "id", "day"]
        assert list(made["home"]["fields"]) == ["floor", "city"]

    def test_a_column_that_takes_the_name_of_a_keys_may_be_null(self) -> None:
        made = after(rename={"id": "ratio", "ratio": "id"}, nullable={"ratio": True}, key=("ratio",))
        assert made["primary_key"] == ["ratio"]
        assert made["fields"]["id"]["required"] is False

    def test_the_key_can_be_another_or_none(self) -> None:
        assert "primary_key" not in after(key=())
        assert "primary_key" not in after(key=(), drop=["id"])


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("said", "why"),
        [
            ({"add": {"email": {"type": "string", "required": True}}}, "have no value"),
            ({"add": {"name": {"type": "string"}}}, "already"),
            ({"add": {"NAME": {"type": "string"}}}, "the same name to Spark"),
            ({"add": {"name.first": {"type": "string"}}}, "only a struct"),
            ({"add": {"_firn_x": {"type": "string"}}}, "reserved"),
            ({"add": {"day_month": {"type": "string"}}}, "partition of the table"),
            ({"add": {"_file": {"type": "string"}}}, "metadata columns"),
            ({"rename": {"name": "_Row_id"}}, "metadata columns"),
            ({"rename": {"name": "price"}}, "the same name to Spark"),
            ({"rename": {"name": "name"}}, "already"),
            ({"rename": {"name": "a.b"}}, "dot"),
            ({"rename": {"name": "Day_Month"}}, "partition of the table"),
            ({"rename": {"name": "n"}, "drop": ["name"]}, "change it or drop it"),
            ({"drop": ["day"]}, "partitioned by"),
            ({"drop": ["id"]}, "primary key"),
            ({"drop": ["home", "home.city"]}, "is dropped with"),
            ({"drop": ["home.city", "home.floor"]}, "no fields left"),
            ({"drop": list(FIELDS), "key": ()}, "partitioned by"),
            ({"drop": ["name", "name"]}, "twice"),
            ({"types": {"id": "string"}}, "can only grow"),
            ({"types": {"ratio": "integer"}}, "can only grow"),
            ({"types": {"price": "decimal(9,2)"}}, "the precision of a decimal can grow"),
            ({"types": {"price": "decimal(12,3)"}}, "its scale cannot change"),
            ({"types": {"tags": "string"}}, "can only grow"),
            ({"types": {"name": "varchar"}}, "string"),
            ({"nullable": {"name": False}}, "cannot become required"),
            ({"nullable": {"id": True}}, "primary key"),
            ({"key": ("name",)}, "is nullable"),
            ({"key": ("ratio",)}, "cannot be a key"),
            ({"key": ("id", "id")}, "twice"),
            ({"moves": [("id", "after", "id")]}, "beside itself"),
            ({"add": {".a": {"type": "long"}}}, "before a dot"),
            ({"add": {"home..a": {"type": "long"}}}, "before a dot"),
            ({"add": {"work": WORK}, "moves": [("work.pay", "first")]}, "which add_columns adds"),
            ({"add": {"home.work": WORK}, "moves": [("home.work.pay", "after", "x")]}, "which add_columns adds"),
            (
                {"add": {"home.work": WORK}, "rename": {"home": "at"}, "moves": [("at.work.pay", "first")]},
                "which add_columns adds",
            ),
        ],
        ids=str,
    )
    def test_with_the_reason(self, said: Mapping[str, Any], why: str) -> None:
        error = refused(**said)
        assert why in error.message
        assert error.field

    @pytest.mark.parametrize(
        "said",
        [
            {"rename": {"nam": "n"}},
            {"drop": ["nam"]},
            {"types": {"nam": "long"}},
            {"nullable": {"nam": True}},
            {"add": {"hom.zip": {"type": "string"}}},
            {"moves": [("nam", "first")]},
            {"moves": [("home.town", "first")]},
            {"moves": [("id", "after", "home.city")]},
            {"moves": [("id", "before", "nam")]},
        ],
        ids=str,
    )
    def test_columns_that_are_not_there(self, said: Mapping[str, Any]) -> None:
        assert refused(UnknownField, **said).field

    def test_every_column_of_a_table_without_a_partitioning(self) -> None:
        schema = parse_schema({"fields": {"a": {"type": "long"}}})
        with pytest.raises(InvalidSchema, match="at least one"):
            evolve(schema, SchemaChanges(drop=["a"]), ())


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return connect(load({"FIRN_HOME": str(tmp_path_factory.mktemp("home"))}))


@pytest.mark.parametrize("seed", range(10))
def test_a_table_becomes_what_was_said_and_its_columns_stay_the_same_ones(catalog: Catalog, seed: int) -> None:
    """By their ids: so what files hold is read under the new names."""
    luck = random.Random(seed)
    table = catalog.create(TableName("acme", "shop", f"t{seed}"), SCHEMA, PARTITION, {})
    made = 0
    for number in range(40):
        wanted = anything(table.schema, luck)
        try:
            expected = evolve(table.schema, wanted, table.past_partition)
        except FirnError:
            continue
        before, alteration = table, Alteration(wanted, expected, {})
        table = alter(catalog, table, f"b{number}", lambda _, said=alteration: said)  # type: ignore[misc]  # bound now
        assert catalog.load(table.name).schema == expected == table.schema
        assert ids_after(before, wanted) == ids(table) & ids_after(before, wanted)
        assert altered_by(table, f"b{number}")
        made += 1
    assert made


PAIR = {"id": {"type": "long", "required": True}, "code": {"type": "long", "required": True}, "s": {"type": "string"}}


@pytest.mark.parametrize(
    ("said", "columns", "key"),
    [
        ({"rename": {"id": "code", "code": "old"}}, ["code", "old", "s"], ["code"]),
        ({"rename": {"code": "old", "id": "code"}}, ["code", "old", "s"], ["code"]),
        ({"rename": {"id": "code", "code": "id"}}, ["code", "id", "s"], ["code"]),
        ({"rename": {"id": "code", "code": "id"}, "key": ("id", "code")}, ["code", "id", "s"], ["id", "code"]),
        ({"rename": {"id": "code"}, "drop": ["code"], "moves": [("s", "first")]}, ["s", "code"], ["code"]),
    ],
    ids=str,
)
def test_a_name_that_becomes_free_can_be_anothers_in_the_same_request(
    tmp_path: Path, said: dict[str, Any], columns: list[str], key: list[str]
) -> None:
    made = altered(tmp_path, parse_schema({"fields": PAIR, "primary_key": ["id"]}), **said)
    assert (list(made["fields"]), made["primary_key"]) == (columns, key)


def test_a_key_keeps_its_order(tmp_path: Path) -> None:
    schema = parse_schema({"fields": PAIR, "primary_key": ["code", "id"]})
    assert altered(tmp_path, schema, rename={"code": "name"})["primary_key"] == ["name", "id"]


def altered(home: Path, schema: TableSchema, **said: Any) -> dict[str, Any]:
    """What the columns of a table that has these are after changes."""
    catalog = connect(load({"FIRN_HOME": str(home)}))
    table = catalog.create(NAME, schema, (), {})
    wanted = changes(**said)
    alteration = Alteration(wanted, evolve(schema, wanted, ()), {})
    alter(catalog, table, "batch", lambda _: alteration)
    return describe_schema(catalog.load(NAME).schema)


def test_a_key_inside_a_struct_which_others_made_stays(tmp_path: Path) -> None:
    catalog = connect(load({"FIRN_HOME": str(tmp_path)}))
    catalog.ensure_namespace(NAME.identifier[0])
    home = NestedField(2, "home", StructType(NestedField(3, "zip", LongType(), required=True)), required=True)
    catalog.iceberg.create_table(NAME.identifier, Schema(home, identifier_field_ids=[3]))
    table = catalog.load(NAME)
    wanted = changes(rename={"home": "at", "home.zip": "code"})
    alteration = Alteration(wanted, evolve(table.schema, wanted, ()), {})
    schema = alter(catalog, table, "batch", lambda _: alteration).iceberg.schema()
    assert [schema.find_column_name(i) for i in schema.identifier_field_ids] == ["at.code"]


def test_what_the_library_cannot_do_is_a_refusal(tmp_path: Path) -> None:
    catalog = connect(load({"FIRN_HOME": str(tmp_path)}))
    table = catalog.create(NAME, SCHEMA, (), {})
    alteration = Alteration(SchemaChanges(rename={"nowhere": "n"}), SCHEMA, {})
    with pytest.raises(InvalidSchema, match="one after the other"):
        alter(catalog, table, "batch", lambda _: alteration)
    assert catalog.load(NAME).schema == SCHEMA


def ids(table: Table) -> frozenset[tuple[int, str]]:
    return frozenset((f.field_id, f.name) for f in table.iceberg.schema().fields)


def ids_after(table: Table, wanted: SchemaChanges) -> frozenset[tuple[int, str]]:
    """Which columns there must still be, by id, and what they are called then."""
    return frozenset((i, wanted.rename.get(name, name)) for i, name in ids(table) if name not in wanted.drop)


def anything(schema: TableSchema, luck: random.Random) -> SchemaChanges:
    """Some changes of a table, of which many cannot be."""
    paths = [f.name for f in schema.fields]
    paths += [f"{f.name}.{g.name}" for f in schema.fields if isinstance(f.type, Struct) for g in f.type.fields]
    new = [f"n{luck.randrange(100)}" for _ in range(3)]

    def some(most: int) -> list[str]:
        return luck.sample(paths, min(len(paths), luck.randint(0, most)))

    rename = {name: luck.choice([*new, *schema.names]) for name in some(3)}
    add = {luck.choice(["", "home."]) + luck.choice(new): {"type": luck.choice(["long", "string"])} for _ in some(2)}
    grows = {"integer": "long", "float": "double", "decimal(10,2)": "decimal(11,2)"}
    plain = {f.name: str(f.type) for f in schema.fields}
    types = {name: grows[plain[name]] for name in some(3) if plain.get(name) in grows}
    names = [*paths, *new]
    moves = [(luck.choice(names), luck.choice(["before", "after"]), luck.choice(names)) for _ in some(2)]
    nullable = dict.fromkeys(some(1), True)
    required = [rename.get(f.name, f.name) for f in schema.fields if f.required and plain[f.name] != "double"]
    key = luck.choice([None, None, (), tuple(luck.sample(required, len(required)))])
    try:
        return changes(rename=rename, add=add, types=types, moves=moves, drop=some(1), nullable=nullable, key=key)
    except FirnError:
        return SchemaChanges()


def test_a_partitioning_of_before_is_heeded_too() -> None:
    past = (*PARTITION, PartitionField("name", "identity", "name"))
    with pytest.raises(InvalidSchema, match="is or was partitioned"):
        evolve(SCHEMA, SchemaChanges(drop=["name"]), past)
    assert evolve(SCHEMA, SchemaChanges(rename={"name": "who"}), past).names[1] == "who"


def test_the_table_remembers_its_last_changes(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create(NAME, SCHEMA, (), {})
    for number in range(25):
        table = alter(catalog, table, f"b{number}", lambda t: Alteration(SchemaChanges(), t.schema, {"comment": "x"}))
    assert not altered_by(table, "b4")
    assert all(altered_by(table, f"b{number}") for number in range(5, 25))
