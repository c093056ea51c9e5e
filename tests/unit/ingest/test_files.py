"""Table files and dataset files: what they mean, and how errors name the key and the line."""

import json
from datetime import date
from decimal import Decimal

import pytest

from service.errors import FirnError
from service.ingest.files import read_dataset, read_table_file, stored_text
from service.model.ingest.dataset import MaxRejects, parse_type

TABLE = """\
name: sales
description: Daily sales transactions table
storage: {type: local, base_path: data/tables/sales/, format: parquet}
partitioning: {strategy: flat, pattern: "{date}.parquet", date_format: "%Y-%m-%d"}
compaction:
  enabled: true
  trigger: {type: manual, delay_days: 7}
  strategy: {type: monthly, output_pattern: "{year}-{month}.parquet", delete_source: false, lookback_months: 1}
ingestion: {dataset_config: configs/sales_dataset.yaml}
"""
DATASET = """\
name: sales
columns:
  - {name: sale_id, type: BIGINT, nullable: false}
  - name: sold_on
    type: DATE
    source: "Date"
  - {name: amount, type: "DECIMAL(10,2)", default: 0}
  - {name: twice, type: "DECIMAL(12,2)", expression: "amount * 2"}
  - {name: customer, type: VARCHAR, transform: [trim, upper]}
filters:
  - {column: amount, operator: ">=", value: 0.5}
  - {column: customer, operator: not_empty}
  - {column: sold_on, operator: between, value: [2024-01-01, 2024-12-31], allow_null: true}
max_rejects: 5%
"""


def test_a_table_file_is_stored_as_it_was_written() -> None:
    table = read_table_file(TABLE)
    assert table.granularity == "monthly"
    assert table.compaction.trigger.delay_days == 7
    assert read_table_file(json.loads(stored_text(table))) == table
    assert json.loads(stored_text(table)).keys() == {
        *("name", "description", "storage", "partitioning", "compaction", "ingestion"),
    }


def test_a_name_is_all_that_a_table_file_needs() -> None:
    table = read_table_file("name: sales")
    assert (table.daily_pattern, table.period_pattern) == ("{date}.parquet", "{year}-{month}.parquet")
    weekly = read_table_file({"name": "sales", "compaction": {"strategy": {"type": "weekly"}}})
    assert weekly.period_pattern == "{year}-W{week}.parquet"


def test_a_hive_table_has_a_folder_for_each_date() -> None:
    table = read_table_file({"name": "sales", "partitioning": {"strategy": "hive"}})
    assert table.daily_pattern == "year={year}/month={month}/day={day}/data.parquet"


@pytest.mark.parametrize(
    ("old", "new", "field", "message"),
    [
        ("monthly", "montly", "compaction.strategy.type", 'line 8: compaction.strategy.type is "montly"'),
        ("delay_days", "delay", "compaction.trigger.delay", "line 7: compaction.trigger.delay is not a known field"),
        ("type: manual, delay_days: 7", "type: schedule", "compaction.trigger", "line 7: .*schedule is missing"),
        (
            "type: manual, delay_days: 7",
            'type: schedule, schedule: "0 3 1 *"',
            "compaction.trigger.schedule",
            "line 7: .*must have five fields",
        ),
        (
            "type: manual, delay_days: 7",
            'type: schedule, schedule: "0 3 1 * *", timezone: Mars/Base',
            "compaction.trigger.timezone",
            "line 7: .*Mars/Base",
        ),
        ("type: manual, delay", 'type: manual, schedule: "0 3 1 * *", delay', "compaction.trigger", "type: schedule"),
        ("{date}.parquet", "x.parquet", "partitioning", r"line 4: .*must contain \{date\}"),
        ("{date}.parquet", "/{date}.parquet", "partitioning", "relative path"),
        ("{date}.parquet", "../{date}.parquet", "partitioning", "relative path"),
        ("{date}.parquet", "*{date}.parquet", "partitioning", "wildcards"),
        ("{date}.parquet", "{date}{hour}.parquet", "partitioning", r"\{hour\} is not a part of a date"),
        ("{date}.parquet", "{date}.csv", None, "must end in .parquet"),
        ("{year}-{month}", "{year}", "compaction.strategy", r"line 8: .*must contain \{month\}"),
        ("%Y-%m-%d", "%m-%d", "partitioning.date_format", "does not tell every day"),
        ("%Y-%m-%d", "%Y/%m/%d", "partitioning.date_format", "slash"),
        ("name: sales", "nam: sales", "nam", "line 1: nam is not a known field; did you mean 'name'"),
        ("name: sales", "name: _x", "name", "line 1: name: '_x' is not a name"),
        ("name: sales", f"name: {'x' * 60}", "name", "line 1: name: it has 60 characters; use at most 51"),
        ("local", "ftp", "storage.type", "line 3: storage.type"),
        ("type: local", "type: s3", "storage", "must begin with s3://"),
        ("data/tables/sales/", "s3://bucket/sales/", "storage", "it is a URL|is a URL"),
        ("name: sales", "name: [a", None, "line 2: expected"),
        ("enabled: true", "enabled: 1", "compaction.enabled", "line 6: .*true or false"),
    ],
)
def test_an_error_in_a_table_file_names_the_key_and_the_line(
    old: str, new: str, field: str | None, message: str
) -> None:
    assert old in TABLE
    with pytest.raises(FirnError, match=message) as refused:
        read_table_file(TABLE.replace(old, new))
    assert refused.value.field == (f"config.{field}" if field else "config")


@pytest.mark.parametrize("content", ["", "- a", "text", "a: {", "a: 1\na: 2", "\x00"])
def test_what_is_no_object_is_refused(content: str) -> None:
    with pytest.raises(FirnError, match=r"^config"):
        read_table_file(content)


def test_a_watched_folder_says_how_its_files_are_called() -> None:
    def table(**watch: object) -> dict[str, object]:
        return {"name": "sales", "ingestion": {"watch": watch}}

    found = read_table_file(table(folder="in", pattern="sales_{date}.csv")).ingestion.watch
    assert found is not None
    assert found.place == "in"
    for wrong, message in (
        (table(pattern="sales_{date}.csv"), "one of folder and prefix"),
        (table(folder="in", prefix="s3://b/", pattern="sales_{date}.csv"), "one of folder and prefix"),
        (table(prefix="b/", pattern="sales_{date}.csv"), "must begin with s3://"),
        (table(folder="in", pattern="sales.csv"), "must contain"),
        (table(folder="in", pattern="{date}", settle_seconds=5, done_marker="_DONE"), "use one"),
    ):
        with pytest.raises(FirnError, match=message):
            read_table_file(wrong)


def test_a_dataset_gives_the_columns_of_the_table() -> None:
    dataset = read_dataset(DATASET)
    assert [(f.name, str(f.type)) for f in dataset.table_schema.fields] == [
        ("sale_id", "long"),
        ("sold_on", "date"),
        ("amount", "decimal(10,2)"),
        ("twice", "decimal(12,2)"),
        ("customer", "string"),
    ]
    assert [c.source_name for c in dataset.columns] == ["sale_id", "Date", "amount", None, "customer"]
    assert dataset.default_of(dataset.columns[2]) == Decimal("0.00")
    assert [rule for rule, _ in dataset.predicates] == [
        "amount >= 0.5",
        "customer not_empty",
        "sold_on between ['2024-01-01', '2024-12-31']",
    ]
    assert read_dataset(json.loads(stored_text(dataset))) == dataset


@pytest.mark.parametrize(
    ("old", "new", "field", "message"),
    [
        ('"amount * 2"', '"amont * 2"', "columns[3].expression", "line 8: .*did you mean 'amount'"),
        ('"amount * 2"', '"twice * 2"', "columns[3].expression", "line 8: .*'twice' is not a column here"),
        ('"amount * 2"', "customer", "columns[3].expression", "line 8: .*it is text"),
        ("BIGINT", "LONG", "columns[0].type", "line 3: .*'LONG' is not a type"),
        ('"DECIMAL(10,2)"', '"DECIMAL(39,2)"', "columns[2].type", "line 7: .*not a decimal type"),
        ('"DECIMAL(10,2)"', "DECIMAL(10,2)", None, "line 7: .*put the type in quotes"),
        ("5%", "500%", "max_rejects", "line 14: .*neither a number of rows"),
        ("5%", "-1", "max_rejects", "line 14: .*neither a number of rows"),
        ("value: 0.5", "value: abc", "filters[0].value", "line 11: .*not a decimal"),
        ("column: amount", "column: amnt", "filters[0].column", "line 11: .*did you mean 'amount'"),
        ("operator: not_empty", "operator: nonempty", "filters[1].operator", "line 12: "),
        ("operator: not_empty", "operator: not_empty, value: 1", "filters[1]", "takes no value"),
        ("default: 0", "default: x", "columns[2].default", "line 7: .*not a decimal"),
        ("name: customer", "name: AMOUNT", "columns[4].name", "line 9: .*same name"),
        ("name: customer", "name: _firn_date", "columns[4].name", "line 9: .*reserved"),
        ("[trim, upper]", "reverse", "columns[4].transform[0]", "line 9: "),
        ('expression: "amount * 2"', 'expression: "amount * 2", source: x', "columns[3]", "excludes source"),
    ],
)
def test_an_error_in_a_dataset_file_names_the_key_and_the_line(
    old: str, new: str, field: str | None, message: str
) -> None:
    assert old in DATASET
    with pytest.raises(FirnError, match=message) as refused:
        read_dataset(DATASET.replace(old, new))
    assert refused.value.field == (f"dataset.{field}" if field else "dataset")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("date", "date"), ("INTEGER", "integer"), ("Decimal", "decimal(18,3)"), ("DECIMAL( 9, 2 )", "decimal(9,2)")],
)
def test_types_are_those_of_sql_in_either_case(text: str, kind: str) -> None:
    assert str(parse_type(text)) == kind


@pytest.mark.parametrize(
    ("limit", "rejected", "read", "refused"),
    [
        (MaxRejects(count=0), 0, 10, False),
        (MaxRejects(count=0), 1, 10, True),
        (MaxRejects(percent=Decimal("5")), 5, 100, False),
        (MaxRejects(percent=Decimal("5")), 6, 100, True),
        (MaxRejects(percent=Decimal("0")), 0, 0, False),
    ],
)
def test_a_file_is_refused_if_more_rows_are_rejected(
    limit: MaxRejects, rejected: int, read: int, refused: bool
) -> None:
    assert limit.exceeded(rejected, read) is refused


def test_yaml_dates_are_text() -> None:
    dataset = read_dataset("columns: [{name: d, type: DATE, default: 2024-01-31}]")
    assert dataset.default_of(dataset.columns[0]) == date(2024, 1, 31)
