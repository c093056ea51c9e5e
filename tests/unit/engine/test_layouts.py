"""Another layout in Iceberg's and Spark's words, as far as that needs neither."""

import pytest

from service.engine.iceberg.layout import spec_fields
from service.engine.sql.checksum import Checksum, aggregates, of
from service.engine.sql.transforms import hashes_uuid, keys, value
from service.model.schema.definition import parse_schema
from service.model.schema.partition import PartitionField

SCHEMA = parse_schema(
    {
        "fields": {
            "id": {"type": "long"},
            "u": {"type": "uuid"},
            "d": {"type": "double"},
            "at": {"type": "timestamp"},
            "inner": {"type": "struct", "required": True, "fields": {"x y": {"type": "string"}}},
        }
    }
)
DAY = PartitionField("at", "day", "at_day")
BUCKET = PartitionField("id", "bucket", "id_bucket", 8)


def test_a_partition_field_that_there_was_keeps_its_id_and_others_get_new_ones() -> None:
    past = [
        {"spec-id": 0, "fields": [{"name": "at_day", "transform": "day", "source-id": 4, "field-id": 1000}]},
        {"spec-id": 1, "fields": [{"name": "b", "transform": "bucket[4]", "source-id": 1, "field-id": 1001}]},
    ]
    assert spec_fields([BUCKET, DAY], {"id": 1, "at": 4}, past, 1001) == [
        {"name": "id_bucket", "transform": "bucket[8]", "source-id": 1, "field-id": 1002},
        {"name": "at_day", "transform": "day", "source-id": 4, "field-id": 1000},
    ]


def test_the_first_partition_fields_of_a_table_are_numbered_as_catalogs_do() -> None:
    fields = spec_fields([BUCKET, DAY], {"id": 1, "at": 4}, [{"spec-id": 0, "fields": []}], 0)
    assert [f["field-id"] for f in fields] == [1000, 1001]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (PartitionField("id", "identity", "id"), "`id`"),
        (BUCKET, "firn.system.bucket(8, `id`)"),
        (DAY, "firn.system.days(`at`)"),
        (PartitionField("inner.x y", "truncate", "x", 2), "firn.system.truncate(2, `inner`.`x y`)"),
        # Iceberg hashes its bytes.
        (PartitionField("u", "bucket", "b", 2), "firn.system.bucket(2, unhex(replace(`u`, '-', '')))"),
    ],
)
def test_a_partition_value_is_what_icebergs_own_functions_say(field: PartitionField, message: str) -> None:
    assert value(field, SCHEMA) == message


def test_numbers_that_only_files_tell_apart_are_told_apart_in_the_order_of_rows() -> None:
    fields = [PartitionField("d", "identity", "d"), PartitionField("id", "identity", "id")]
    assert keys(fields, SCHEMA) == ["CAST(`d` AS STRING) AS _firn_key_0", "`id` AS _firn_key_1"]


def test_checksums_of_parts_add_up_to_that_of_the_whole_whatever_their_order() -> None:
    parts = [of((2, 2**33, 7)), of((3, 5, 2**32 - 1)), of((0, None, None))]
    assert parts[0] == Checksum(2, 2**33 + (7 << 32))
    whole = sum(parts, Checksum())
    assert whole == sum(reversed(parts), Checksum())
    assert whole.rows == 5
    assert str(whole) == f"{(2**33 + (7 << 32) + 5 + ((2**32 - 1) << 32)) % 2**64:016x}"


def test_a_checksum_marks_what_is_null() -> None:
    text = aggregates(SCHEMA.fields[:2])
    assert "xxhash64(`id` IS NULL, `id`, `u` IS NULL, `u`)" in text


def test_a_bucket_of_a_uuid_is_told_from_others() -> None:
    assert hashes_uuid([DAY, PartitionField("u", "bucket", "b", 2)], SCHEMA)
    assert not hashes_uuid([BUCKET, PartitionField("u", "identity", "u")], SCHEMA)
