"""The database below the ledger: its connections, and its tables, made when it is opened first."""

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select

from service.errors import LedgerUnavailable
from service.ledger.schema import LAYOUT, layout, metadata
from service.model import postgres


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


def prepare(engine: Engine) -> None:
    """Make the tables of an empty database. LedgerUnavailable if it has those of another layout."""
    with engine.connect().execution_options(reads=True) as connection:
        if _is_ready(connection):
            return
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":  # instances may open an empty database at the same moment
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtextextended('firn ledger', 0))")
        if not _is_ready(connection):
            metadata.create_all(connection)
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
