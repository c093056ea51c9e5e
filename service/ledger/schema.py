"""The ledger's tables."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()

batches = Table(
    "batches",
    metadata,
    Column("batch", String(40), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("table_uuid", String(36), nullable=False, index=True),  # empty for a table that is being made
    Column("operation", String(40), nullable=False),
    Column("requests", Integer, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("request_ids", Text, nullable=False),  # one a line
    Column("state", String(10), nullable=False, index=True),  # begun, taken, done, void
    Column("snapshot_id", BigInteger),
    Column("begun_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger, index=True),
    Column("owner", String(40), nullable=False, server_default=""),  # the instance that began it, or took it over
    Column("undoes", Text),  # of an UNDO: the batch and the request it takes back
)

# What requests did to a table lately is asked for by their ids.
Index("batches_of_table", batches.c.table_uuid, batches.c.begun_ms)

# Which of a shared batch's rows were whose, for as long as one of its requests can be undone.
shares = Table(
    "shares",
    metadata,
    Column("batch", String(40), primary_key=True),
    Column("counts", Text, nullable=False),  # the rows of each request, in the order of their ids
    Column("unmarked", Integer, nullable=False),
    Column("marks", LargeBinary, nullable=False),
    Column("schema_id", Integer, nullable=False),
    Column("until_ms", BigInteger, nullable=False, index=True),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("batch", String(40), index=True),  # null where the answer needed no change
    Column("request_id", Text),  # of those that share the batch, whose key it is
    Column("answer", LargeBinary),  # null until it is known
    Column("noted_ms", BigInteger, nullable=False, index=True),
)

# Few keys have no answer, and those are asked for often.
_unanswered = keys.c.answer.is_(None)
Index("keys_unanswered", keys.c.batch, sqlite_where=_unanswered, postgresql_where=_unanswered)

write_counts = Table(
    "write_counts",
    metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("writes", Integer, nullable=False),
)
