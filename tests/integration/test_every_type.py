"""Records of every type, written through HTTP, Spark and Iceberg, are read back equal."""

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.model.records import read_records
from service.model.schema.definition import describe_schema, parse_schema
from service.model.schema.partition import parse_partition
from service.model.schema.types import PRIMITIVES, Field, Primitive, TableSchema
from tests.harness import Firn
from tests.strategies import json_text, partitions, records, same, schemas
from tests.support.marks import thorough_after

ROW = "row number"
WIDE = parse_schema(
    {
        "fields": {
            **{name: {"type": name} for name in (*PRIMITIVES, "decimal(38,0)", "decimal(38,38)", "decimal(9,2)")},
            **{f"list of {name}": {"type": "array", "items": name} for name in PRIMITIVES},
            **{f"map to {name}": {"type": "map", "key_type": "string", "value_type": name} for name in PRIMITIVES},
        }
    }
)

_tables = itertools.count(1)


def few(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        # A draw is a whole table; the tenant may be the same for all of them.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )


def round_trip(firn: Firn, tenant: str, schema: TableSchema, rows: list[dict[str, Any]], by: Any = None) -> None:
    """Create a table of the schema, write the rows, query them, and compare what both say exactly."""
    name = f"types-{next(_tables)}"
    numbered = TableSchema((Field(ROW, Primitive("long"), True), *schema.fields), schema.primary_key)
    sent = [{ROW: i, **row} for i, row in enumerate(rows)]
    table = {"tenant_id": tenant, "table": name}
    create = {"operation": "CREATE_TABLE", **table, "schema": describe_schema(numbered)}
    firn.ok(create if by is None else {**create, "partition": by})
    # The client's own text: rendering the rows here would make strings of their decimals.
    written = firn.post(json_text({"operation": "WRITE", **table, "records": sent}))
    assert written.get("records_written") == len(sent), written
    got = firn.rows(tenant, name, sort=[{"field": ROW}])
    one, other = read_records(numbered, got), read_records(numbered, sent)
    assert same(one, other), (one, other)


@pytest.mark.parametrize("examples", thorough_after(1, [4, 25]))
def test_every_type_nested_three_deep_is_read_back_equal(firn: Firn, tenant: str, examples: int) -> None:
    @few(examples)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        schema = data.draw(schemas(max_columns=4, keyed=data.draw(st.booleans())).filter(_free))
        round_trip(firn, tenant, schema, data.draw(records(schema, min_size=1)))

    holds()


@pytest.mark.parametrize("examples", thorough_after(1, [4, 15]))
def test_a_partitioned_table_is_read_back_equal(firn: Firn, tenant: str, examples: int) -> None:
    @few(examples)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        schema = data.draw(schemas(max_columns=3).filter(_free))
        by = data.draw(partitions(schema))
        assert len(parse_partition(by, schema)) == len(by["partitions"])
        round_trip(firn, tenant, schema, data.draw(records(schema, min_size=1)), by)

    holds()


@few(3)
@given(records(WIDE, min_size=10, max_size=20))
def test_every_plain_type_alone_and_in_lists_and_maps_is_read_back_equal(
    firn: Firn, tenant: str, rows: list[dict[str, Any]]
) -> None:
    round_trip(firn, tenant, WIDE, rows)


def _free(schema: TableSchema) -> bool:
    return ROW not in schema.names
