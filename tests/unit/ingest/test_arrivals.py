"""Which files of a watched folder are ingested, and in which order."""

import os
from datetime import date
from pathlib import Path

from service.catalog.files.source_files import SourceFile, source_files
from service.ingest.arrivals import Version, arrivals
from service.model.ingest.table_file import Watch

NOW = 1_700_000_000_000


def file(name: str, age_s: int = 60, size: int = 10) -> SourceFile:
    return SourceFile("in", name, size, NOW - age_s * 1000)


def found(*files: SourceFile, ingested: dict[str, Version] | None = None, **watch: object) -> list[str]:
    rules = Watch.model_validate({"folder": "in", "pattern": "sales_{date}.csv", **watch})
    return [a.file.name for a in arrivals(files, rules, "%Y-%m-%d", ingested or {}, NOW)]


def test_files_are_ingested_in_order_of_their_dates() -> None:
    files = [file(f"sales_{day:02}.01.2024.csv") for day in (30, 4, 11)]
    assert found(*files, date_format="%d.%m.%Y") == [
        "sales_04.01.2024.csv",
        "sales_11.01.2024.csv",
        "sales_30.01.2024.csv",
    ]


def test_a_file_is_ingested_again_only_if_it_changed() -> None:
    one = file("sales_2024-01-01.csv")
    assert found(one, ingested={one.path: (one.bytes, one.modified_ms)}) == []
    assert found(one, ingested={one.path: (one.bytes, one.modified_ms - 1)}) == [one.name]
    assert found(one, ingested={one.path: (one.bytes - 1, one.modified_ms)}) == [one.name]


def test_a_file_that_just_changed_may_be_a_partial_upload() -> None:
    assert found(file("sales_2024-01-01.csv", age_s=4)) == []
    assert found(file("sales_2024-01-01.csv", age_s=29), settle_seconds=30) == []
    assert found(file("sales_2024-01-01.csv", age_s=0), settle_seconds=0) == ["sales_2024-01-01.csv"]


def test_with_a_marker_a_file_waits_for_it() -> None:
    data, other = file("sales_2024-01-01.csv", age_s=0), file("sales_2024-01-02.csv")
    assert found(data, other, done_marker="{file}.done") == []
    assert found(data, other, file("sales_2024-01-01.csv.done"), done_marker="{file}.done") == [data.name]
    assert found(data, other, file("_SUCCESS"), done_marker="_SUCCESS") == [data.name, other.name]


def test_names_that_do_not_fit_the_pattern_are_left_alone() -> None:
    names = ["sales_2024-01-01.csv.part", ".sales_2024-01-01.csv", "sales_2024-13-01.csv", "sales_.csv", "readme.md"]
    assert found(*map(file, names)) == []


def test_folders_inside_are_listed_only_if_the_pattern_names_them(tmp_path: Path) -> None:
    inner = tmp_path / "year=2024/month=01/day=02"
    inner.mkdir(parents=True)
    (inner / "data.csv").write_text("a\n")
    (tmp_path / "top.csv").write_text("abc\n")
    os.utime(tmp_path / "top.csv", (1, 1.5))
    assert source_files(f"{tmp_path}/", {}) == [SourceFile(str(tmp_path), "top.csv", 4, 1500)]
    nested = source_files(str(tmp_path), {}, nested=True)
    assert [each.name for each in nested] == ["top.csv", "year=2024/month=01/day=02/data.csv"]
    rules = Watch(folder=str(tmp_path), pattern="year={year}/month={month}/day={day}/data.csv", settle_seconds=0)
    assert [a.day for a in arrivals(nested, rules, "%Y-%m-%d", {}, NOW * 2)] == [date(2024, 1, 2)]


def test_a_folder_that_does_not_exist_yet_has_no_files(tmp_path: Path) -> None:
    assert source_files(str(tmp_path / "later"), {}) == []
