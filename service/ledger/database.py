"""The database below the ledger: how it is connected to, and how its tables come to be."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Engine, create_engine, event, inspect
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateColumn, CreateTable

from service import postgres
from service.ledger.schema import metadata


def engine(url: str) -> Engine:
    if url.startswith("postgresql:"):
        return create_engine(
            postgres.sqlalchemy(url),
            pool_size=8,
            max_overflow=-1,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
        )
    # A reader never waits for a connection: one of them is the thread that all requests come in on.
    timeout = {"timeout": 30} if url.startswith("sqlite") else {}
    made = create_engine(url, connect_args=timeout, pool_size=8, max_overflow=-1)
    if url.startswith("sqlite"):

        @event.listens_for(made, "connect")
        def _durable(connection, _record):  # type: ignore[no-untyped-def]  # SQLAlchemy types neither argument
            # pysqlite would begin transactions late, as readers, and then fail to become writers.
            connection.isolation_level = None
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")

        @event.listens_for(made, "begin")
        def _as_writer(connection):  # type: ignore[no-untyped-def]  # SQLAlchemy types neither argument
            reads = connection.get_execution_options().get("reads")
            connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return made


def bring_up_to_date(engine: Engine) -> None:
    """Make the tables that are missing, and what earlier versions did not have in theirs."""
    if engine.dialect.name == "sqlite":
        _file_up_to_date(engine)
        return
    with _one_at_a_time(engine):
        _make_what_is_missing(engine)


def _file_up_to_date(engine: Engine) -> None:
    """A file says by its `user_version` whose tables it has, so that nearly every start has nothing to look for."""
    wanted = _version()
    with engine.connect().execution_options(reads=True) as connection:
        there = connection.exec_driver_sql("PRAGMA user_version").scalar()
    if there == wanted:
        return
    _make_what_is_missing(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"PRAGMA user_version = {wanted}")


@cache
def _version() -> int:
    dialect = sqlite.dialect()
    statements = "".join(str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables)
    return zlib.crc32(statements.encode()) & 0x7FFFFFFF


def _make_what_is_missing(engine: Engine) -> None:
    metadata.create_all(engine)
    _add_what_is_new(engine)


@contextmanager
def _one_at_a_time(engine: Engine) -> Iterator[None]:
    """Instances that open an empty ledger at the same moment make its tables one after the other."""
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtextextended('firn ledger', 0))")
        yield


def _add_what_is_new(engine: Engine) -> None:
    """Bring a ledger that an earlier version made up to date: columns are only ever added, or made wider."""
    known = inspect(engine)
    for table in metadata.sorted_tables:
        there = {column["name"]: column["type"] for column in known.get_columns(table.name)}
        for column in table.columns:
            change = None
            if column.name not in there:
                change = f"ADD COLUMN {CreateColumn(column).compile(dialect=engine.dialect)}"
            elif engine.dialect.name == "postgresql" and _length(column.type) > _length(there[column.name]):
                change = f"ALTER COLUMN {column.name} TYPE VARCHAR({_length(column.type)})"  # SQLite counts no letters
            if change is not None:
                with engine.begin() as connection:
                    connection.exec_driver_sql(f"ALTER TABLE {table.name} {change}")


def _length(kind: Any) -> int:
    """How long a text of a column's type may be; 0 where it is no text, or of any length."""
    return getattr(kind, "length", None) or 0
