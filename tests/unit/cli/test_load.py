"""`firn load`: which body each file becomes, which columns a new table gets, and how it is sent."""

import gzip
import io
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.cli.connection.remote import Remote
from service.cli.loading import read_file
from tests.cli import call
from tests.unit.cli.test_commands import Service, firn

CSV = "id,who,at,price\n1,Ann,2026-03-01T10:00:00Z,1.5\n2,Bo,,2.5\n"
TABLE = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([1, 2], pa.int16()),
        "who": pa.array(["a", "b"]).dictionary_encode(),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "tags": pa.array([["x"], []], pa.list_(pa.string())),
        "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
        "home": pa.array([{"city": "Bern"}, None]),
    }
)


class Loading(Service):
    """A service that keeps what is uploaded."""

    def upload(self, path: str, media_type: str, chunks: Callable[[], Iterable[bytes]], key: str) -> dict[str, Any]:
        self.asked.append((path, media_type, b"".join(chunks())))
        return {"success": True, "records_written": 2}


def write(path: Path) -> str:
    """A file of two rows in the format that its name says."""
    if path.suffix == ".parquet":
        pq.write_table(TABLE, path, row_group_size=1)
    elif path.suffix in (".arrow", ".feather"):
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, TABLE.schema) as writer:
            writer.write_table(TABLE)
    elif path.suffix == ".arrows":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, TABLE.schema) as writer:
            writer.write_table(TABLE)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(CSV.encode()))
    elif path.suffix == ".zst":
        path.write_bytes(pa.compress(CSV.encode(), "zstd", asbytes=True))
    else:
        path.write_text(CSV if path.suffix == ".csv" else '{"id": 1}\n{"id": 2}\n')
    return str(path)


@pytest.mark.parametrize("name", ["orders.csv", "orders.csv.gz", "orders.csv.zst"])
def test_text_is_sent_unpacked(name: str, tmp_path: Path) -> None:
    service = Loading()
    assert firn(["load", write(tmp_path / name), "-n", "shop"], service).out == "2 rows loaded\n"
    assert service.asked == [("/tables/default/shop/orders/records?async=true", "text/csv", CSV.encode())]


@pytest.mark.parametrize("name", ["o.parquet", "o.arrow", "o.feather", "o.arrows"])
def test_columns_are_sent_as_an_arrow_stream(name: str, tmp_path: Path) -> None:
    service = Loading()
    assert firn(["load", write(tmp_path / name), "shop.orders"], service).code == 0
    ((path, kind, body),) = service.asked
    assert (path, kind) == ("/tables/default/shop/orders/records?async=true", "application/vnd.apache.arrow.stream")
    assert pa.ipc.open_stream(io.BytesIO(body)).read_all().equals(TABLE)


def test_a_parquet_file_is_read_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"n": list(range(100_000))}), path)
    pieces = list(read_file(str(path), None).chunks(lambda done, rows: None))
    assert len(pieces) > 5
    assert pa.ipc.open_stream(b"".join(pieces)).read_all().num_rows == 100_000


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        (
            "o.parquet",
            {
                "id": {"type": "long"},
                "small": {"type": "integer"},
                "who": {"type": "string"},
                "price": {"type": "decimal(10,2)"},
                "tags": {"type": "array", "items": "string"},
                "at": {"type": "timestamptz"},
                "home": {"type": "struct", "fields": {"city": {"type": "string"}}},
            },
        ),
        (
            "o.csv.gz",
            {
                "id": {"type": "long"},
                "who": {"type": "string"},
                "at": {"type": "timestamptz"},
                "price": {"type": "double"},
            },
        ),
        ("o.ndjson", {"id": {"type": "long"}}),
    ],
)
def test_a_new_table_has_the_columns_of_the_file(name: str, columns: dict[str, Any], tmp_path: Path) -> None:
    service = Loading()
    assert firn(["load", write(tmp_path / name), "shop.t", "--create"], service).code == 0
    create, _ = service.asked
    assert create == {
        "operation": "CREATE_TABLE",
        "tenant_id": "default",
        "namespace": "shop",
        "table": "t",
        "schema": {"fields": columns},
        "if_not_exists": True,
    }


def test_digits_with_a_leading_zero_are_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("zip,n\n8000,0\n01234,5\n")
    assert read_file(str(tmp_path / "t.csv"), None).fields() == {"zip": {"type": "string"}, "n": {"type": "long"}}


def many(rows: int) -> str:
    """A CSV file whose texts contain line breaks."""
    return "id,note\n" + "".join(f'{i},"first ""line""\nsecond line, 1234567890"\n' for i in range(rows))


@pytest.mark.parametrize("rows", [1, 60_000])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_the_types_of_columns_come_from_whole_records(name: str, rows: int, tmp_path: Path) -> None:
    path = tmp_path / name
    text = many(rows).encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert (rows == 1) == (len(text) < 1 << 20)
    assert read_file(str(path), None).fields() == {"id": {"type": "long"}, "note": {"type": "string"}}


def test_a_record_may_be_longer_than_what_is_read_for_the_types(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,note\n1,"' + "a line\n" * 400_000 + '"\n2,b\n')
    assert read_file(str(tmp_path / "t.csv"), None).fields()["id"] == {"type": "long"}


@pytest.mark.parametrize("name", ["t.csv", "t.csv.zst", "t.ndjson", "t.parquet"])
def test_the_rows_that_were_sent_are_counted(name: str, tmp_path: Path) -> None:
    path, sent = tmp_path / name, [(0, 0)]
    if name == "t.parquet":
        pq.write_table(pa.table({"n": list(range(60_000))}), path)
    else:
        text = (many(60_000) if "csv" in name else '{"a": "\\""}\n' * 60_000).encode()
        path.write_bytes(pa.compress(text, "zstd", asbytes=True) if name.endswith("zst") else text)
    list(read_file(str(path), None).chunks(lambda done, rows: sent.append((done, rows))))
    assert sent == sorted(sent)
    assert sent[-1][1] == 60_000


def test_no_table_is_created_if_no_service_can_take_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "o.csv")
    done = call(["load", path, "--create", "--no-background"], {"FIRN_HOME": str(tmp_path / "home")})
    assert (done.code, "start one with `firn serve`" in done.err) == (2, True)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("name", ["o.txt", "missing.csv", "o.parquet.gz"])
def test_a_file_that_cannot_be_loaded_is_refused(name: str, tmp_path: Path) -> None:
    if "missing" not in name:
        (tmp_path / name).write_text("x")
    service = Loading()
    assert firn(["load", str(tmp_path / name), "t", "--create"], service).code == 2
    assert service.asked == []


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    (tmp_path / "o.parquet").write_text("id\n1\n")
    done = firn(["load", str(tmp_path / "o.parquet"), "t"], Loading())
    assert (done.code, done.err.startswith(f"firn: {tmp_path / 'o.parquet'} cannot be read: ")) == (2, True)


class Refusing(BaseHTTPRequestHandler):
    """Answers a body after its first piece, and reads no more of it."""

    received: bytes
    path_: str

    def do_POST(self) -> None:
        type(self).path_ = self.path
        size = int(self.rfile.readline(), 16)
        type(self).received = self.rfile.read(size)
        body = json.dumps({"success": False, "error": {"code": "INVALID_RECORD", "message": "line 1"}}).encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of a service that refuses every body."""
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_body_is_sent_in_pieces_and_a_refusal_is_read(refusing: str) -> None:
    endless = itertools.chain([b"a,b\n"], itertools.repeat(b"x" * 100_000, 1_000))
    response = Remote(refusing).upload("/x", "text/csv", lambda: endless, "k")
    assert (Refusing.received, response["error"]["code"]) == (b"a,b\n", "INVALID_RECORD")


def test_a_file_goes_through_the_proxy_that_the_variables_name(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", refusing)
    monkeypatch.delenv("no_proxy", raising=False)
    remote = Remote("http://firn.example.com", login="Basic x")
    remote.upload("/tables/t/records", "text/csv", lambda: iter([b"a,b\n"]), "k")
    assert Refusing.path_ == "http://firn.example.com/tables/t/records"


class Upserting(Loading):
    def upload(self, path: str, media_type: str, chunks: Callable[[], Iterable[bytes]], key: str) -> dict[str, Any]:
        super().upload(path, media_type, chunks, key)
        counts = {"records_inserted": 1, "records_updated": 2, "records_unchanged": 0, "records_replaced": 3}
        return {"success": True, **counts}


def test_an_upsert_says_by_which_columns_and_shows_what_it_counted(tmp_path: Path) -> None:
    service, file = Upserting(), write(tmp_path / "o.csv")
    shown = firn(["load", file, "shop.orders", "--upsert", "--key-cols", "id,who", "--replace"], service)
    assert shown.out == "1 row inserted, 2 updated, 3 replaced\n"
    path = "/tables/default/shop/orders/records?async=true&mode=upsert&key_cols=id%2Cwho&on_multiple=replace"
    assert service.asked == [(path, "text/csv", CSV.encode())]


@pytest.mark.parametrize("option", [["--key-cols", "id"], ["--last-wins"], ["--replace"]])
def test_options_of_an_upsert_need_it(option: list[str], tmp_path: Path) -> None:
    service = Loading()
    assert "needs --upsert" in firn(["load", write(tmp_path / "o.csv"), "shop.orders", *option], service).err
    assert service.asked == []
