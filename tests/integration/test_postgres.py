"""The shared shape: ledger and catalog in PostgreSQL, tables in a folder; nothing of them under FIRN_HOME."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
import pytest

from service.catalog.connect import connect
from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.errors import CatalogUnavailable, CommitConflict, FirnError, LedgerUnavailable, TableExists
from service.jobs.job import BULK, BulkProgress
from service.jobs.jobs import Jobs
from service.ledger.jobs import JobRecords
from service.ledger.ledger import KeyRecord, Ledger, NewBatch, open_ledger
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.types import Field, Primitive, TableSchema
from service.settings import Settings, load
from tests.fakes import FakeCatalog
from tests.faults.process import Process
from tests.harness import wait_until
from tests.jobs import begin, jobs_on, table_of
from tests.postgres import PASSWORD, PostgresServer

T = TypeVar("T")
# Longer, as they are spelled in a catalog, than the 255 characters that Iceberg's own tables take.
TABLE = {"tenant_id": "T" * 63, "namespace": "N" * 63, "table": "Orders"}
ONE_COLUMN = TableSchema((Field("id", Primitive("long"), required=True),))


@pytest.fixture
def environ(postgres: PostgresServer, tmp_path: Path) -> dict[str, str]:
    """Variables, without their prefix, for instances with their ledger and their catalog in one empty database."""
    url = postgres.url("firn")
    return {
        "LEDGER__URL": url,
        "CATALOG__TYPE": "postgresql",
        "CATALOG__URI": url,
        "CATALOG__WAREHOUSE": f"file://{tmp_path}/warehouse",
    }


def settings(environ: dict[str, str], home: Path) -> Settings:
    home.mkdir(exist_ok=True)
    return load({"FIRN_HOME": str(home), **{f"FIRN_{name}": value for name, value in environ.items()}})


def together(count: int, act: Callable[[int], T]) -> list[T | Exception]:
    """What comes of doing a thing several times at the same moment."""
    start = threading.Barrier(count)

    def one(number: int) -> T | Exception:
        start.wait(30)
        try:
            return act(number)
        except Exception as e:
            return e

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_instances_may_open_an_empty_ledger_at_the_same_moment(environ: dict[str, str], tmp_path: Path) -> None:
    opened = together(6, lambda n: open_ledger(settings(environ, tmp_path / str(n))))
    ledgers = [ledger for ledger in opened if isinstance(ledger, Ledger)]
    assert ledgers == opened
    try:
        ledgers[0].answer("k", "print", b"\x00answer\xff")
        known = ledgers[5].key("k")
        assert isinstance(known, KeyRecord)
        assert known.answer == b"\x00answer\xff"
    finally:
        for ledger in ledgers:
            ledger.close()
    assert not list(tmp_path.glob("*/ledger.db"))


def test_a_long_writer_is_known_to_other_instances_until_it_is_gone(environ: dict[str, str], tmp_path: Path) -> None:
    here, there = (open_ledger(settings(environ, tmp_path / name)) for name in ("here", "there"))
    try:
        seen, table = jobs_on(here), table_of("uuid-1")
        with begin(jobs_on(there), BULK, table) as job, begin(seen, "COMPACT", table):
            assert [(seen.what(w), w.owner) for w in seen.writing("uuid-1")] == [
                ("a bulk load", there.owners.me),
                ("a compaction", here.owners.me),
            ]
            job.commit_gate()
            there.owners.close()
            wait_until(lambda: [seen.what(w) for w in seen.writing("uuid-1")] == ["a compaction"], 20)
            with pytest.raises(CommitConflict):
                job.commit_gate()
        assert seen.writing("uuid-1") == []
    finally:
        here.close()
        there.close()


def test_what_one_instance_is_at_no_other_begins(postgres: PostgresServer) -> None:
    url = postgres.url("first")
    one, two = Ledger(url), Ledger(url)
    with one.owners.first("it") as first, two.owners.first("it") as second, two.owners.first("other") as other:
        assert (first, second, other) == (True, False, True)
    with two.owners.first("it") as again:
        assert again
    one.close()
    two.close()


def test_instances_may_open_an_empty_catalog_and_make_the_same_table_at_the_same_moment(
    environ: dict[str, str], tmp_path: Path
) -> None:
    opened = together(6, lambda n: connect(settings(environ, tmp_path / str(n))))
    catalogs = [catalog for catalog in opened if isinstance(catalog, Catalog)]
    assert catalogs == opened
    for table in ("a", "b", "c"):
        name = TableName("tenant", f"namespace-{table}", table)
        made = together(6, lambda n, name=name: catalogs[n].create(name, ONE_COLUMN, (), {}))  # type: ignore[misc]
        refused = [error for error in made if isinstance(error, Exception)]
        assert len(refused) == 5, made
        assert all(isinstance(error, TableExists) for error in refused), refused
        assert len({catalog.load(name).uuid for catalog in catalogs}) == 1
        assert catalogs[0].list_tables("tenant", f"namespace-{table}") == [table]
        assert len(list((tmp_path / "warehouse").glob(f"tenant__namespace_{table}*/*"))) == 1, (
            "who lost leaves no folder"
        )


def test_a_name_may_be_as_long_as_in_any_other_catalog(environ: dict[str, str], tmp_path: Path) -> None:
    catalog = connect(settings(environ, tmp_path / "home"))
    name = TableName("T" * 63, "N" * 63, "X" * 63)
    made = catalog.create(name, ONE_COLUMN, (), {})
    assert catalog.load(name).uuid == made.uuid
    catalog.drop(made, purge=True)
    assert catalog.list_tables(name.tenant, name.namespace) == []


def test_a_catalog_is_used_by_who_may_not_make_its_tables(environ: dict[str, str], tmp_path: Path) -> None:
    connect(settings(environ, tmp_path / "home"))
    url = environ["CATALOG__URI"]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM public")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
    guest = f"postgresql://guest:guest@{url.rpartition('@')[2]}"
    catalog = connect(settings({**environ, "CATALOG__URI": guest}, tmp_path / "guest"))
    assert catalog.list_tables("tenant", "default") == []


def test_nothing_waits_longer_than_half_a_minute_for_the_ledgers_database(
    environ: dict[str, str], tmp_path: Path
) -> None:
    ledger = open_ledger(settings(environ, tmp_path / "home"))
    with ledger._writing() as connection:
        result = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in ("statement_timeout", "lock_timeout")]
        isolation = connection.exec_driver_sql("SHOW transaction_isolation").scalar()
    ledger.close()
    assert (result, isolation) == (["30s", "30s"], "read committed")


def test_keys_without_an_answer_have_an_index_of_their_own(environ: dict[str, str], tmp_path: Path) -> None:
    open_ledger(settings(environ, tmp_path / "home")).close()
    with psycopg.connect(environ["LEDGER__URL"]) as connection:
        asked = "SELECT indexdef FROM pg_indexes WHERE indexname = 'keys_unanswered'"
        (made,) = connection.execute(asked).fetchall()
    assert made[0].endswith("WHERE (answer IS NULL)")


def test_an_error_of_the_database_says_what_and_never_the_password(environ: dict[str, str], tmp_path: Path) -> None:
    secret = quote(PASSWORD, safe="")
    for wrong in (f"-not-{secret}", secret):
        changed = {k: v.replace(f":{secret}@", f":{wrong}@") for k, v in environ.items()}
        if wrong == secret:
            changed = {k: f"{v}_gone" if v.startswith("postgresql:") else v for k, v in changed.items()}
        for opening, kind in ((connect, CatalogUnavailable), (open_ledger, LedgerUnavailable)):
            body = message(opening, settings(changed, tmp_path / "home"), kind)
            assert ("password authentication failed" if wrong != secret else "does not exist") in body
            assert PASSWORD not in body
            assert secret not in body


def message(opening: Callable[[Settings], Any], chosen: Settings, kind: type[FirnError]) -> str:
    with pytest.raises(kind) as refused:
        opening(chosen)
    return refused.value.message


@pytest.mark.thorough
def test_a_ledger_and_a_catalog_are_used_again_after_the_database_restarted(tmp_path: Path) -> None:
    with PostgresServer() as server:
        chosen = settings(
            {
                "LEDGER__URL": server.url("ledger"),
                "CATALOG__TYPE": "postgresql",
                "CATALOG__URI": server.url("catalog"),
                "CATALOG__WAREHOUSE": f"file://{tmp_path}/warehouse",
            },
            tmp_path / "home",
        )
        ledger, catalog = open_ledger(chosen), connect(chosen)
        ledger.begin(NewBatch("one", TableName("t", "n", "x"), "uuid", "WRITE", ["r"]))
        catalog.create(TableName("t", "n", "x"), ONE_COLUMN, (), {})
        server.halt()
        server.start()
        assert ledger.find("one") is not None
        assert catalog.list_tables("t", "n") == ["x"]
        server.halt(at_once=True)
        with pytest.raises(LedgerUnavailable):
            ledger.find("one")
        with pytest.raises(CatalogUnavailable):
            catalog.list_tables("t", "n")
        server.start()
        assert ledger.find("one") is not None
        assert catalog.list_tables("t", "n") == ["x"]
        ledger.close()


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_every_kind_of_change_works_and_a_key_has_one_answer_on_another_instance(
    environ: dict[str, str], tmp_path: Path
) -> None:
    schema = {
        "fields": {"id": {"type": "long", "required": True}, "name": {"type": "string"}},
        "primary_key": ["id"],
    }
    write = {"operation": "WRITE", **TABLE, "records": [{"id": 1, "name": "Ann"}], "idempotency_key": "once"}
    upsert = {"operation": "UPSERT", **TABLE, "records": [{"id": 1, "name": "Bo"}, {"id": 2}], "idempotency_key": "up"}
    query = {"operation": "QUERY", **TABLE, "sort": ["id"]}
    rows = [{"id": n, "name": {1: "Bo", 2: None}.get(n, "Eve")} for n in range(1, 6)]
    with Process(tmp_path / "one", **environ) as process:
        process.wait_until_ready()
        firn = process.firn
        firn.ok({"operation": "CREATE_TABLE", **TABLE, "schema": schema})
        [jvm] = process.jvms()
        assert PASSWORD.encode() not in Path(f"/proc/{jvm}/cmdline").read_bytes(), "everybody can read that"
        written, upserted = firn.ok(write), firn.ok(upsert)
        assert (upserted["records_inserted"], upserted["records_updated"]) == (1, 1)
        for n in (3, 4, 5):
            firn.ok({"operation": "WRITE", **TABLE, "records": [{"id": n, "name": "Eve"}]})
        firn.ok({"operation": "UPDATE", **TABLE, "updates": {"name": "Eve"}, "filter": {"id": 3}})
        assert firn.ok(query)["data"] == rows
        assert firn.ok({"operation": "COMPACT", **TABLE, "force": True})["compacted"] is True
        assert firn.ok(query)["data"] == rows
        process.terminate()
        assert process.exit_code(30) == 0
        assert PASSWORD not in process.log
    with Process(tmp_path / "two", **environ) as process:
        process.wait_until_ready()
        firn = process.firn
        assert [firn.ok(write), firn.ok(upsert)] == [written, upserted]
        firn.fail({**write, "records": [{"id": 9}]}, "KEY_REUSED", 422)
        assert firn.ok(query)["data"] == rows
        deleted = firn.ok({"operation": "DELETE", **TABLE, "filter": {"id": {"gt": 1}}, "create_backup": True})
        assert firn.ok(query)["data"] == rows[:1]
        backup = {**TABLE, "name": deleted["backup"]}
        assert firn.ok({"operation": "RESTORE_BACKUP", **backup})["records_after"] == len(rows)
        assert firn.ok(query)["data"] == rows
        firn.ok({"operation": "DELETE_BACKUP", **backup, "idempotency_key": "down"})
        assert firn.ok({"operation": "LIST_BACKUPS", **TABLE})["backups"] == []
        firn.ok({"operation": "DROP_TABLE", **TABLE, "purge": True, "confirm": True})
        listed = {"operation": "LIST_TABLES", "tenant_id": TABLE["tenant_id"], "namespace": TABLE["namespace"]}
        assert firn.ok(listed)["tables"] == []
    assert not [*tmp_path.glob("*/*.db"), *tmp_path.glob("*/warehouse")]


def test_a_ledger_of_another_layout_is_refused_and_changed_by_nobody(postgres: PostgresServer) -> None:
    url = postgres.url("firn")
    Ledger(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE layout SET number = number + 1")
        for _ in range(2):
            with pytest.raises(LedgerUnavailable, match="made by another version of Firn") as refused:
                Ledger(url)
            assert PASSWORD not in refused.value.message
        connection.execute("UPDATE layout SET number = number - 1")
    Ledger(url).close()


def test_a_job_is_cancelled_by_another_instance(postgres: PostgresServer) -> None:
    url = postgres.url("firn")
    table = FakeCatalog().create(TableName("a", "b", "t"), ONE_COLUMN, (), {})
    ledgers = [Ledger(url), Ledger(url)]
    try:
        there, here = (Jobs(JobRecords(ledger), Commits(FakeCatalog().as_catalog, ledger)) for ledger in ledgers)
        running = Call()
        job = there.accept("COMPACT", table, BulkProgress(), call=running)
        assert here.cancel(job.id)["cancelling"] is True
        there.look()
        assert running.cancelled
        there.cancelled(job, b'{"code": "CANCELLED"}')
        assert here.describe(job.id)["state"] == "cancelled"
        left = there.accept("COMPACT", table, BulkProgress(), state="queued")
        ledgers[0].close()
        # The server needs a moment to see that the connection has gone.
        wait_until(lambda: here.describe(left.id)["state"] == "interrupted", 20)
    finally:
        for ledger in ledgers:
            ledger.close()
