"""Backups of tables that other programs changed in ways of their own: delete files, other columns, other partitions."""

from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from service.engine.iceberg.tables import load_table
from service.engine.session.java import java_class
from tests.harness import Firn
from tests.integration.test_backups import BY_KIND, Shop

_ICEBERG = "org.apache.iceberg"
LARGE = 2**40
MERGE_ON_READ = "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    """A table of two files, whose rows other programs delete by files beside them."""
    made = Shop(firn, tenant)
    made.write(1, 2, 3)
    made.write(4, 5, 6, kind="b")
    made.sql(MERGE_ON_READ)
    return made


def ids(shop: Shop, **query: Any) -> list[int]:
    return [number for number, _ in shop.rows(**query)]


def delete_files(shop: Shop) -> int:
    return len(shop.sql("SELECT file_path FROM {t}.delete_files"))


def delete_equal(shop: Shop, number: int) -> None:
    """Delete rows by a file that says what they hold, as streaming programs do. Only of a large number Py4J makes a
    Long, as such a file needs it."""
    assert number >= 2**31
    table = shop.loaded

    def job(session: SparkSession) -> None:
        iceberg = load_table(session, table.spark_name)
        field = iceberg.schema().findField("id")
        gateway: Any = SparkContext._gateway
        by = gateway.new_array(gateway.jvm.int, 1)
        by[0] = field.fieldId()
        fields = java_class("java.util.ArrayList")()
        fields.add(field)
        only_id = java_class(f"{_ICEBERG}.Schema")(fields)
        builder = java_class(f"{_ICEBERG}.data.GenericFileWriterFactory$Builder")(iceberg)
        parquet = java_class(f"{_ICEBERG}.FileFormat").PARQUET
        builder.deleteFileFormat(parquet).equalityFieldIds(by).equalityDeleteRowSchema(only_id)
        output = iceberg.io().newOutputFile(f"{iceberg.location()}/data/equal-{number}.parquet")
        plain = java_class(f"{_ICEBERG}.encryption.EncryptedFiles").plainAsEncryptedOutput(output)
        writer = builder.build().newEqualityDeleteWriter(plain, iceberg.spec(), None)
        record = java_class(f"{_ICEBERG}.data.GenericRecord").create(only_id)
        record.setField("id", number)
        writer.write(record)
        writer.close()
        iceberg.newRowDelta().addDeletes(writer.toDeleteFile()).commit()

    shop.firn.app.engine.run(job)


class TestDeleteFiles:
    def test_rows_that_were_deleted_since_come_back_in_a_file_of_their_own(self, shop: Shop) -> None:
        name = shop.keep()
        shop.sql("DELETE FROM {t} WHERE id = 2")
        assert (ids(shop), delete_files(shop)) == ([1, 3, 4, 5, 6], 1)
        result = shop.restore(name, dry_run=True)["plan"]
        answer = shop.restore(name)
        for body in (result, answer):
            assert (body["records_before"], body["records_after"]) == (5, 6)
            assert (body["files_removed"], body["files_added"]) == (0, 1), "the other rows stay where they are"
        assert (ids(shop), delete_files(shop)) == ([1, 2, 3, 4, 5, 6], 1)
        assert shop.ok("DESCRIBE_TABLE")["description"]["row_count"] == 6

    @pytest.mark.thorough
    def test_rows_that_were_deleted_before_do_not_come_back(self, shop: Shop) -> None:
        shop.sql("DELETE FROM {t} WHERE id = 2")
        name = shop.keep()
        shop.ok("DELETE", all=True)
        assert shop.restore(name)["records_after"] == 5
        assert ids(shop) == [1, 3, 4, 5, 6]

    @pytest.mark.thorough
    def test_a_file_of_which_the_same_rows_are_deleted_stays_as_it_is(self, shop: Shop) -> None:
        shop.sql("DELETE FROM {t} WHERE id = 2")
        name = shop.keep()
        shop.write(7, kind="c")
        shop.sql("DELETE FROM {t} WHERE id = 5")
        answer = shop.restore(name)
        assert (answer["records_before"], answer["records_after"]) == (5, 5)
        assert (answer["files_removed"], answer["files_added"]) == (1, 1)
        assert (ids(shop), delete_files(shop)) == ([1, 3, 4, 5, 6], 2)
        assert shop.restore(name)["restored"] is True, "the rows are the same, but one of them is in another file"

    @pytest.mark.thorough
    def test_more_rows_deleted_of_a_file_are_told_from_fewer(self, shop: Shop) -> None:
        shop.sql("DELETE FROM {t} WHERE id = 2")
        fewer = shop.keep()
        shop.sql("DELETE FROM {t} WHERE id = 3")
        more = shop.keep()
        assert shop.restore(fewer)["records_after"] == 5
        assert ids(shop) == [1, 3, 4, 5, 6]
        assert shop.restore(more)["records_after"] == 4
        assert ids(shop) == [1, 4, 5, 6]

    @pytest.mark.thorough
    def test_rows_that_are_deleted_by_what_they_hold_come_back_too(self, shop: Shop) -> None:
        shop.write(LARGE, 7, LARGE + 1)
        name = shop.keep()
        delete_equal(shop, LARGE)
        delete_equal(shop, LARGE + 1)
        shop.write(LARGE)
        assert (ids(shop), delete_files(shop)) == ([1, 2, 3, 4, 5, 6, 7, LARGE], 2)
        later = shop.keep()
        assert shop.restore(name)["records_after"] == 9
        assert (ids(shop), delete_files(shop)) == ([1, 2, 3, 4, 5, 6, 7, LARGE, LARGE + 1], 0)
        assert shop.restore(later)["records_after"] == 8
        assert ids(shop) == [1, 2, 3, 4, 5, 6, 7, LARGE]


class TestOtherColumnsAndPartitions:
    def test_rows_come_back_under_the_tables_present_columns(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant)
        shop.write(1, 2)
        name = shop.keep()
        shop.sql("ALTER TABLE {t} ADD COLUMN extra STRING")
        shop.sql("ALTER TABLE {t} RENAME COLUMN kind TO sort")
        shop.ok("UPDATE", filter={"id": 1}, updates={"extra": "x"})
        shop.ok("WRITE", records=[{"id": 3, "sort": "c", "extra": "y"}])
        assert shop.restore(name)["records_after"] == 2
        rows = firn.rows(tenant, "t", sort=["id"])
        assert rows == [{"id": 1, "sort": "a", "extra": None}, {"id": 2, "sort": "a", "extra": None}]
        shop.sql("ALTER TABLE {t} DROP COLUMN sort")
        shop.ok("DELETE", all=True)
        assert shop.restore(name)["records_after"] == 2
        assert firn.rows(tenant, "t", sort=["id"]) == [{"id": 1, "extra": None}, {"id": 2, "extra": None}]

    def test_rows_come_back_under_the_tables_present_partitioning(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant, partition=BY_KIND)
        for kind in "abc":
            shop.write(1, 2, kind=kind)
        name = shop.keep()
        shop.sql("ALTER TABLE {t} REPLACE PARTITION FIELD kind WITH bucket(2, id)")
        shop.ok("DELETE", filter={"kind": {"ne": "c"}})
        shop.write(9, kind="d")
        before = sorted(shop.rows())
        answer = shop.restore(name, create_backup=True)
        assert (answer["records_before"], answer["records_after"]) == (3, 6)
        assert sorted(shop.rows()) == [(n, kind) for n in (1, 2) for kind in "abc"]
        specs = [row.spec_id for row in shop.sql("SELECT spec_id FROM {t}.files ORDER BY spec_id")]
        assert (specs[0], set(specs[1:])) == (0, {1}), "a file that stayed, and new ones"
        assert shop.restore(answer["backup"])["records_after"] == 3
        assert sorted(shop.rows()) == before
