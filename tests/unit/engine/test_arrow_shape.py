"""Which files Arrow writes instead of Spark, and how."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.engine.jobs.arrow.files import FileShape, field, write
from service.engine.jobs.arrow.shape import shaped
from service.engine.jobs.arrow.statistics import ColumnStatistics, missing_statistics

SCHEMA = pa.schema(
    [
        field("id", pa.int64(), True, 1),
        field("text", pa.string(), False, 2),
        field("raw", pa.binary(), False, 3),
        field("x", pa.float64(), False, 4),
        field("y", pa.float32(), False, 5),
    ]
)
LONG, NAN = "z" * 5000, float("nan")
PARQUET = "write.parquet."


def rows(*texts: str | None, x: float | None = 1.0) -> pa.Table:
    columns = [
        {"id": i, "text": text, "raw": None if text is None else text.encode(), "x": x, "y": x}
        for i, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(columns, schema=SCHEMA)


def written(folder: Path, *groups: pa.Table) -> str:
    path = folder / "file.parquet"
    with pq.ParquetWriter(path, SCHEMA, **FileShape(SCHEMA, "zstd", 1 << 20).options(groups[0])) as writer:
        for group in groups:
            writer.write_table(group)
    return str(path)


class TestShape:
    def test_a_new_tables_files_have_iceberg_s_sizes_and_codec(self) -> None:
        assert shaped(SCHEMA, {}) == FileShape(SCHEMA, "zstd", 128 << 20, 512 << 20, None)

    def test_the_tables_properties_say_how(self) -> None:
        properties = {
            "write.format.default": "parquet",
            "write.target-file-size-bytes": "1048576",
            f"{PARQUET}compression-codec": "zstd",
            f"{PARQUET}compression-level": "7",
            f"{PARQUET}row-group-size-bytes": "4096",
            f"{PARQUET}row-group-size-track-uncompressed": "true",
            "comment": "read.parquet. is nothing of the writer's",
        }
        assert shaped(SCHEMA, properties) == FileShape(SCHEMA, "zstd", 4096, 1 << 20, 7)
        assert shaped(SCHEMA, properties, "gzip") == FileShape(SCHEMA, "gzip", 4096, 1 << 20, None)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("write.format.default", "avro"),
            (f"{PARQUET}compression-codec", "brotli"),
            (f"{PARQUET}compression-level", "best"),
            (f"{PARQUET}page-size-bytes", "1024"),
            (f"{PARQUET}bloom-filter-enabled.column.id", "true"),
        ],
    )
    def test_spark_writes_what_arrow_would_write_otherwise(self, name: str, value: str) -> None:
        assert shaped(SCHEMA, {name: value}) is None

    def test_a_level_that_only_zstd_has_is_sparks(self) -> None:
        properties = {f"{PARQUET}compression-codec": "gzip", f"{PARQUET}compression-level": "7"}
        assert shaped(SCHEMA, properties) is None

    def test_rows_are_written_in_row_groups_of_the_tables_size(self, tmp_path: Path) -> None:
        many = rows(*(f"text {i}" for i in range(1000)))
        write(many, FileShape(SCHEMA, "gzip", many.nbytes // 4), f"file:{tmp_path}/new/file.parquet")
        found = pq.ParquetFile(tmp_path / "new" / "file.parquet")
        assert found.read().equals(many)
        groups = [found.metadata.row_group(i) for i in range(found.num_row_groups)]
        assert [group.num_rows for group in groups] == [250] * 4
        assert groups[0].column(0).compression == "GZIP"

    def test_a_file_that_cannot_be_written_is_gone(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="schema"):
            write(rows("a").drop_columns("id"), FileShape(SCHEMA, "zstd", 1 << 20), f"file:{tmp_path}/file.parquet")
        assert list(tmp_path.iterdir()) == []


class TestStatistics:
    def test_the_footer_is_enough_for_all_but_floats(self, tmp_path: Path) -> None:
        path = written(tmp_path, rows("a", None), rows(None, None))
        assert missing_statistics(path, floats=False) == []

    def test_nan_is_counted_in_every_row_group(self, tmp_path: Path) -> None:
        path = written(tmp_path, rows("a", "b", x=NAN), rows("c", x=1.5), rows("d", x=None))
        assert missing_statistics(path, floats=True) == [ColumnStatistics(4, 4, 1, 2), ColumnStatistics(5, 4, 1, 2)]

    def test_ends_of_texts_that_arrow_leaves_out_are_found_in_all_row_groups(self, tmp_path: Path) -> None:
        path = written(tmp_path, rows("b", "c"), rows("m", LONG, None), rows("a"))
        assert missing_statistics(path, floats=False) == [
            ColumnStatistics(2, 6, 1, None, "a", LONG),
            ColumnStatistics(3, 6, 1, None, b"a", LONG.encode()),
        ]

    def test_texts_that_are_not_utf8_have_no_ends(self, tmp_path: Path) -> None:
        path = tmp_path / "file.parquet"
        bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\x88\x13\0\0"), pa.py_buffer(b"\xff" * 5000))
        pq.write_table(pa.Table.from_arrays([bad], schema=pa.schema([SCHEMA.field("text")])), path, store_schema=False)
        assert missing_statistics(str(path), floats=False) == [ColumnStatistics(2, 1, 0)]

    def test_files_with_nested_columns_are_sparks_and_complete(self, tmp_path: Path) -> None:
        path = tmp_path / "file.parquet"
        pq.write_table(pa.table({"x": [NAN], "list": [[1]]}), path)
        assert missing_statistics(str(path), floats=True) == []
