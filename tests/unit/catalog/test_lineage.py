"""What commits did is told in the words of the table as it is now."""

import json
from pathlib import Path

import pytest

from service.catalog.lineage import lineage, upsert_key_columns
from service.catalog.tables import Table
from service.model.names import KEYS_PROPERTY
from tests.unit.iceberg_tables import make_table, open_catalog


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(open_catalog(tmp_path))


def upsert(table: Table, *keys: str) -> None:
    """A commit that met rows by these columns."""
    with table.iceberg.transaction() as transaction:
        transaction.update_snapshot({KEYS_PROPERTY: json.dumps(keys)}).fast_append().commit()


def test_the_keys_of_an_upsert_bear_the_names_that_their_columns_have_now(table: Table) -> None:
    upsert(table, "country", "id")
    with table.iceberg.update_schema() as change:
        change.rename_column("country", "land")
    with table.iceberg.update_schema() as change:
        change.add_column("country", table.iceberg.schema().find_type("land"))
    upsert(table, "country")
    assert [upsert_key_columns(table, commit) for commit in lineage(table)] == [("land", "id"), ("country",)]


def test_of_keys_whose_column_is_gone_none_is_left(table: Table) -> None:
    upsert(table, "country", "id")
    with table.iceberg.update_schema() as change:
        change.delete_column("country")
    with table.iceberg.update_schema() as change:
        change.add_column("country", table.iceberg.schema().find_type("id"))
    assert [upsert_key_columns(table, commit) for commit in lineage(table)] == [()]


def test_a_commit_that_met_no_rows_has_no_keys(table: Table) -> None:
    with table.iceberg.transaction() as transaction:
        transaction.update_snapshot().fast_append().commit()
    assert [upsert_key_columns(table, commit) for commit in lineage(table)] == [()]
