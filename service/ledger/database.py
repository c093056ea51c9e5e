"""The database below the ledger: its connections, its errors, and its tables, which the first start creates."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Table,
    and_,
    create_engine,
    event,
    insert,
    inspect,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from service.errors import LedgerUnavailable
from service.ledger.schema import LAYOUT, layout, metadata, views
from service.model import postgres
from service.settings import Settings

T = TypeVar("T")
_VALUES_PER_IN = 500


def url_of(settings: Settings) -> str:
    """The database that the settings name, or the one under FIRN_HOME."""
    return settings.ledger.url or f"sqlite:///{settings.home / 'ledger.db'}"


def engine(url: str) -> Engine:
    if url.startswith("postgresql:"):
        return create_engine(
            postgres.sqlalchemy(url), pool_size=8, max_overflow=-1, pool_pre_ping=True, isolation_level="READ COMMITTED"
        )
    # Without a limit of connections a reader never waits for one: the event loop reads too.
    made = create_engine(url, connect_args={"timeout": 30}, pool_size=8, max_overflow=-1)

    @event.listens_for(made, "connect")
    def _durable(connection, _record):  # type: ignore[no-untyped-def]  # SQLAlchemy types neither argument
        # By itself pysqlite begins every transaction as a reader, which may then fail to become a writer.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(made, "begin")
    def _as_writer(connection):  # type: ignore[no-untyped-def]  # SQLAlchemy types neither argument
        reads = connection.get_execution_options().get("reads")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return made


def prepare(engine: Engine) -> None:
    """Create the tables of an empty database; LedgerUnavailable if it has those of another layout."""
    with engine.connect().execution_options(reads=True) as connection:
        if _is_ready(connection):
            return
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":  # several instances may open an empty database at the same moment
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtextextended('firn ledger', 0))")
        if not _is_ready(connection):
            metadata.create_all(connection)
            for view in views(engine.dialect.name):
                connection.exec_driver_sql(view)
            connection.execute(insert(layout), {"number": LAYOUT})


def _is_ready(connection: Connection) -> bool:
    found = set(inspect(connection).get_table_names()) & set(metadata.tables)
    number = connection.execute(select(layout.c.number)).scalar() if layout.name in found else None
    if found and number != LAYOUT:
        raise LedgerUnavailable(
            f"the ledger at {connection.engine.url!s} was made by another version of Firn (its layout is "
            f"{number or 'unknown'}, this version needs {LAYOUT}); use that version, or an empty FIRN_HOME and an "
            "empty FIRN_LEDGER__URL"
        )
    return bool(found)


@contextmanager
def translated() -> Iterator[None]:
    """Translate SQLAlchemy's exceptions into LedgerUnavailable."""
    try:
        yield
    except SQLAlchemyError as e:
        reason = str(e.__cause__ or e).partition("\n")[0]
        raise LedgerUnavailable(f"the ledger does not respond: {reason}; try again") from e


def follows(place: tuple[int, str], time: Column[int], id: Column[str]) -> ColumnElement[bool]:
    """The rows after a place, by time with the latest first, and by id among those of one time."""
    ms, last = place
    return or_(time < ms, and_(time == ms, id > last))


def insert_new(connection: Connection, table: Table) -> Any:
    """An INSERT that can say what to do on a conflict, which each dialect has in a class of its own."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values in parts that one IN (…) can hold."""
    return (values[i : i + _VALUES_PER_IN] for i in range(0, len(values), _VALUES_PER_IN))
