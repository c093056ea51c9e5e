"""Which files are written by one Spark job, and how they are split into records for it."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from service.ingest.day_files import DayFile
from service.ingest.drift import Drift
from service.ingest.files import read_dataset
from service.ingest.prepare import PreparedFile
from service.ingest.sources.fetch import FetchedFile, Source, fetch
from service.ingest.sources.readable import readable, split
from service.ingest.tasks.together import grouped
from service.model.ingest.dataset import CsvFormat
from service.model.ingest.reading import LINE_COLUMN, PROBLEM_COLUMN, RAW_COLUMN, ReadableFile

DATASET = read_dataset({"columns": [{"name": "id", "type": "BIGINT"}]})
OTHER = read_dataset({"columns": [{"name": "id", "type": "VARCHAR"}]})
CSV = ReadableFile("a.csv", 100, "csv", ("id",))


def prepared(day: int, file: ReadableFile = CSV, dataset: object = DATASET) -> PreparedFile:
    source = Source("a", "a")
    fetched = FetchedFile(source, Path("a"), file.size, "", 0, "csv")
    return PreparedFile(DayFile(date(2024, 1, day), source), fetched, file, dataset, Drift())  # type: ignore[arg-type]


def test_small_files_with_the_same_fields_and_rules_are_written_together() -> None:
    files = {
        0: prepared(1),
        1: prepared(2, replace(CSV, fields=("id", "more"))),
        2: prepared(3),
        3: prepared(4, dataset=OTHER),
        4: prepared(5),
    }
    groups, others = grouped(files)
    assert [list(group) for group in groups] == [[0, 2, 4]]
    assert list(others) == [1, 3]


@pytest.mark.parametrize(
    "other",
    [
        prepared(1),
        prepared(2, replace(CSV, size=1 << 30)),
        prepared(2, ReadableFile("a.parquet", 1, "parquet", ("id",))),
        prepared(2, replace(CSV, format="json")),
    ],
    ids=["same-date", "large", "typed", "other-format"],
)
def test_other_files_are_written_alone(other: PreparedFile) -> None:
    groups, others = grouped({0: prepared(1), 1: other})
    assert (groups, list(others)) == ([], [0, 1])


def test_groups_have_a_limited_size() -> None:
    groups, others = grouped({i: prepared(i + 1, replace(CSV, size=4 << 20)) for i in range(20)})
    assert [len(group) for group in groups] == [8, 8, 4]
    assert others == {}


def test_a_split_file_has_its_records_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfid,what\r\n1,a\r\n\r\n2,\xff\r\n3")
    source = Source(str(path), "a.csv")
    fetched = fetch(source, tmp_path, {}, quote='"')
    read = readable(fetched, tmp_path, CsvFormat(), None)
    assert not read.is_split
    done = split(fetched, read, tmp_path, CsvFormat())
    assert (done.is_split, done.fields, done.has_cr, done.has_bom) == (True, read.fields, False, False)
    rows = [tuple(row.values()) for row in pq.read_table(done.path).to_pylist()]
    assert rows == [(2, "1,a", False), (4, "2,\ufffd", True), (5, "3", False)]
    assert pq.read_table(done.path).column_names == [LINE_COLUMN, RAW_COLUMN, PROBLEM_COLUMN]
    assert split(fetched, done, tmp_path, CsvFormat()) is done
