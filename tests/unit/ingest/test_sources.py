"""Files are fetched in one pass, recognised by what is in them, and refused if they are not what they seem."""

import gzip
import hashlib
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.errors import FirnError, InvalidFile, InvalidRequest
from service.ingest.sources.fetch import FetchedFile, Source, fetch, remove_leftovers, working_folder
from service.ingest.sources.readable import count_records, lines_before, readable
from service.ingest.sources.roots import Roots
from service.model.ingest.dataset import CsvFormat
from service.model.ingest.reading import LINE_COLUMN, RAW_COLUMN, ReadableFile


def fetched(path: Path) -> FetchedFile:
    return fetch(Source(str(path), path.name), path.parent, {}, quote='"')


def read(path: Path) -> tuple[ReadableFile, int]:
    file = fetched(path)
    found = readable(file, path.parent, CsvFormat(), None)
    return found, count_records(found, file)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b"a,b\n1,2\n", "csv"),
        ("a.txt", b"a,b\n", "csv"),
        ("a", b'{"a": 1}\n', "json"),
        ("a.jsonl", b"", "json"),
        ("a.csv.gz", gzip.compress(b"a,b\n", mtime=0), "csv"),
        ("a.ndjson.zst", pa.compress(b"{}\n", "zstd", asbytes=True), "json"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_format_is_told_by_the_content_or_the_name(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    found = fetched(path)
    assert (found.format, found.bytes) == (expected, len(content))
    assert found.content_hash == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.parquet", b"a,b\n", "is not a Parquet file"),
        ("a.json", b'[{"a": 1}]', "is a JSON array"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], "cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_not_what_it_seems_is_refused(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match=problem):
        fetched(path)


def test_a_csv_file_with_a_header_says_what_to_skip(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeff\r\n id ,"na me"\r\n1,2\r\n\r\n3,é\r\n'.encode())
    found, records = read(path)
    assert found.fields == ("id", "na me")
    assert (found.skipped_lines, found.has_cr, found.has_bom, found.is_split, records) == (2, True, True, False, 2)


def test_a_csv_file_with_line_breaks_in_quotes_is_split_into_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,"a\nb"\n\n2,c\n')
    found, records = read(path)
    rows = pq.read_table(found.path).to_pylist()
    assert (found.is_split, records) == (True, 2)
    assert [(r[LINE_COLUMN], r[RAW_COLUMN]) for r in rows] == [(2, '1,"a\nb"'), (5, "2,c")]


def test_another_encoding_is_converted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("id;näme\n1;é\n".encode("utf-16"))
    how = CsvFormat(delimiter=";", encoding="utf-16")
    file = fetch(Source(str(path), path.name), tmp_path, {}, quote='"', encoding="utf-16")
    found = readable(file, tmp_path, how, None)
    assert found.fields == ("id", "näme")
    assert pq.read_table(found.path)[RAW_COLUMN].to_pylist() == ["1;é"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty"),
        ("id, ID \n", "the same name"),
        ("id,,b\n", "column 2 of"),
        ('{"id": 1, "Id": 2}\n', "the same name"),
    ],
)
def test_columns_that_cannot_be_told_apart_are_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "a"
    path.write_text(content)
    with pytest.raises(InvalidFile, match=problem):
        read(path)


def test_the_lines_before_each_part_of_a_file_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"aa\nbb\ncc\ndd")
    # Parts of 3 bytes begin at each line, which belongs to the part before it.
    assert lines_before(str(path), 3) == [0, 2, 3, 4]
    assert lines_before(str(path), 100) == [0]


def test_temporary_files_are_removed_also_those_of_a_killed_process(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with working_folder(spool) as folder:
        (folder / "x").write_text("x")
    assert list(spool.iterdir()) == []
    (spool / "left").mkdir()
    (spool / "left" / "x").write_text("x")
    with working_folder(spool) as folder:
        remove_leftovers(spool)
        assert list(spool.iterdir()) == [folder], "a request that came before the leftovers were removed has its own"
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("{root}/in/a.csv", True),
        ("file://{root}/in/a.csv", True),
        ("{root}/in/../out/a.csv", False),
        ("{root}/in/link.csv", False),
        ("{root}/inner/a.csv", False),
        ("s3://lake/daily/a.csv", True),
        ("s3a://lake/daily/a.csv", True),
        ("s3://lake/daily2/a.csv", False),
        ("s3://lake/daily/../secret", False),
        ("/etc/passwd", False),
    ],
)
def test_only_allowed_places_are_read(tmp_path: Path, source: str, allowed: bool) -> None:
    root = os.path.realpath(tmp_path)
    for name in ("in", "out", "inner"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "a.csv").write_text("x")
    (tmp_path / "in" / "link.csv").symlink_to(tmp_path / "out" / "a.csv")
    roots = Roots((f"{root}/in", "s3://lake/daily"))
    if allowed:
        assert roots.resolve(source.format(root=root)).endswith("/a.csv")
    else:
        with pytest.raises(InvalidRequest, match="FIRN_INGEST__ALLOWED_ROOTS"):
            roots.resolve(source.format(root=root))


@pytest.mark.parametrize("source", ["http://x/y", "", "a\0b"], ids=["http", "empty", "nul"])
def test_a_source_that_is_neither_a_path_nor_in_s3_is_refused(source: str) -> None:
    with pytest.raises(FirnError, match="source"):
        Roots().resolve(source)
