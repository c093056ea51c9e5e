"""The ledger's tables."""

import re

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

metadata = MetaData()

# The number of this layout: it grows with each change of the tables below.
LAYOUT = 4
layout = Table("layout", metadata, Column("number", Integer, primary_key=True))

batches = Table(
    "batches",
    metadata,
    Column("batch", String(40), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("table_uuid", String(36), nullable=False, index=True),  # empty for a table that is being created
    Column("operation", String(40), nullable=False),
    Column("requests", Integer, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("request_ids", Text, nullable=False),  # one per line
    Column("state", String(10), nullable=False, index=True),  # begun, taken, done, void
    Column("snapshot_id", BigInteger),
    Column("begun_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger, index=True),
    Column("owner", String(40), nullable=False, server_default=""),  # the instance that began it, or took it over
    Column("undoes", Text),  # for an UNDO: the batch and the request that it reverts
    Column("parts", Text),  # JSON: what each request did, if edits share the change
)

# UNDO searches the latest changes of a table by request id.
Index("batches_of_table", batches.c.table_uuid, batches.c.begun_ms)

# Which rows of a shared batch belong to which request, as long as one of its requests can be undone.
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

# The rows that each request of a batch with edits removed and added, as long as one of them can be undone.
request_rows = Table(
    "request_rows",
    metadata,
    Column("batch", String(40), primary_key=True),
    Column("rows", LargeBinary, nullable=False),  # an Arrow stream
    Column("schema_id", Integer, nullable=False),
    Column("until_ms", BigInteger, nullable=False, index=True),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("batch", String(40), index=True),  # null if the request changed nothing
    Column("request_id", Text),  # the request of the batch that has the key
    Column("answer", LargeBinary),  # null until it is known
    Column("noted_ms", BigInteger, nullable=False, index=True),
)

# Few keys have no response, and those are read often.
_unanswered = keys.c.answer.is_(None)
Index("keys_unanswered", keys.c.batch, sqlite_where=_unanswered, postgresql_where=_unanswered)

write_counts = Table(
    "write_counts",
    metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("writes", Integer, nullable=False),
)

# Long work of every kind; docs/decisions/0016 has the life cycle.
jobs = Table(
    "jobs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),  # this and the next two are empty if it is not about one table
    Column("table_name", String(63), nullable=False),
    Column("table_uuid", String(36), nullable=False, index=True),
    Column("state", String(12), nullable=False),
    Column("claim", String(100), index=True),  # what only one unfinished job can have
    Column("listed", Boolean, nullable=False),  # whether LIST_JOBS shows it
    Column("owner", String(40), nullable=False),  # empty if no instance works on it
    Column("fence", BigInteger, nullable=False),  # 1, and one more each time its owner changes
    Column("heartbeat", BigInteger, nullable=False),  # a count that grows while the job runs
    Column("requested_by", String(200), nullable=False),  # "request <id>", "schedule <name>", "auto"
    Column("progress", Text, nullable=False),  # JSON
    Column("details", Text, nullable=False),  # JSON that only its kind reads
    Column(
        "outcome", LargeBinary, nullable=False
    ),  # JSON: the response or the error; until then, the expected response
    Column("batch", String(40)),  # the last one that it tried to commit
    Column("cancelling_ms", BigInteger),  # when its owner was asked to cancel it
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),  # from then on it may have files that are in no snapshot
    Column("ended_ms", BigInteger, index=True),  # null while it is unfinished
    Column("leaves_files", Boolean, nullable=False),  # whether it ended and left files that recovery has to remove
)
_unfinished = jobs.c.ended_ms.is_(None)
Index("jobs_claimed", jobs.c.claim, unique=True, sqlite_where=_unfinished, postgresql_where=_unfinished)
Index("jobs_of_kind", jobs.c.kind, jobs.c.started_ms)

schedules = Table(
    "schedules",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("name", String(63), nullable=False),
    Column("cron", String(200), nullable=False),
    Column("timezone", String(100), nullable=False),
    Column("delay_s", BigInteger, nullable=False),
    Column("scope", String(10), nullable=False),  # table, namespace, tenant
    Column("namespace", String(63)),
    Column("table_name", String(63)),
    Column("task", Text, nullable=False),  # JSON: a request without an address
    Column("enabled", Boolean, nullable=False),
    Column("catch_up", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("next_ms", BigInteger, index=True),  # null if it is disabled or has no further time
    Column("owner", Text),  # JSON: who created it, with whose rights it runs; null: created without authentication
    UniqueConstraint("tenant", "name"),
)

# Where the tables are that were ever renamed, dropped or set offline.
places = Table(
    "places",
    metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),  # the name that a dropped table had
    Column("state", String(10), nullable=False),  # here, dropped
    Column("offline", Boolean, nullable=False, server_default=false()),
    Column("dropped_ms", BigInteger),
    Column("keep_until_ms", BigInteger),
    Column("folder", Text),  # removed with a dropped table; null if other tables may need its files
)
Index("places_by_name", places.c.tenant, places.c.namespace, places.c.table_name)

# Every file that was ingested or refused. The snapshots of the table have the same about those that were ingested.
ingestions = Table(
    "ingestions",
    metadata,
    Column("run_id", String(40), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("table_uuid", String(36), nullable=False),
    Column("ingest_date", String(10), nullable=False),
    Column("file", Text, nullable=False),
    Column("content_hash", String(64), nullable=False),  # the SHA-256 of the file
    Column("dataset_hash", String(64), nullable=False),  # of the rules by which it was read
    Column("file_bytes", BigInteger, nullable=False),
    Column("file_modified_ms", BigInteger, nullable=False),
    Column("mode", String(10), nullable=False),  # restate, append, replay
    Column("state", String(10), nullable=False),  # done, refused, unchanged
    Column("records_read", BigInteger, nullable=False),
    Column("records_ingested", BigInteger, nullable=False),
    Column("records_rejected", BigInteger, nullable=False),
    Column("snapshot_id", BigInteger),  # null if it was refused
    Column("error", Text),  # why it was refused
    Column("drift", Text),  # how its columns differed, if that is why, as JSON
    Column("requested_by", String(200), nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger, nullable=False),
)
Index("ingestions_of_table", ingestions.c.table_uuid, ingestions.c.ingest_date, ingestions.c.ended_ms)

# Every table that was made from a table file.
ingestion_tables = Table(
    "ingestion_tables",
    metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("table_file", Text, nullable=False),  # JSON
    Column("created_ms", BigInteger, nullable=False),
)

# The files that were exported for readers without Iceberg, and the state of the table that each of them has.
exports = Table(
    "exports",
    metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("place", String(700), primary_key=True),  # the path or URL of the file
    Column("runs", String(64), nullable=False),  # a digest of the ids of the ingests that its rows are from
    Column("sequence_number", BigInteger, nullable=False),  # of the snapshot that it was written from
    Column("records", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("exported_ms", BigInteger, nullable=False),
)

# Every dynamic table, dropped ones included. The table itself has its definition, too.
dynamic_tables = Table(
    "dynamic_tables",
    metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("definition", Text, nullable=False),  # JSON
    Column("state", String(10), nullable=False),  # active, suspended, failed
    Column("reason", Text),  # why it is suspended or has failed, or how the last refresh failed
    Column("failures", Integer, nullable=False),  # refreshes that failed since the last one that did not
    Column("retry_ms", BigInteger),  # when the worker may try again, after a failure
    Column("refreshed_ms", BigInteger),  # the time for which the rows are right; null until its first refresh
    Column("created_ms", BigInteger, nullable=False),
)
Index("dynamic_tables_by_name", dynamic_tables.c.tenant, dynamic_tables.c.namespace, dynamic_tables.c.table_name)

# The tables that dynamic tables read.
dynamic_sources = Table(
    "dynamic_sources",
    metadata,
    Column("table_uuid", String(36), primary_key=True),  # the dynamic table
    Column("number", Integer, primary_key=True),  # the place of the source among all of the query
    Column("source_uuid", String(36), nullable=False, index=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
)

# The snapshots that the rows of dynamic tables stand for. The tables say it themselves; here it can be found by source,
# and is newer if a refresh wrote nothing because no row had changed.
dynamic_cursors = Table(
    "dynamic_cursors",
    metadata,
    Column("table_uuid", String(36), primary_key=True),  # the dynamic table
    Column("source_uuid", String(36), primary_key=True, index=True),
    Column("pass_id", String(40), nullable=False),  # of the table's own state; it counts only as long as that has it
    Column("snapshot_id", BigInteger),  # null if the source had none
    Column("is_read", Boolean, nullable=False),  # by the query itself, and not only by one of its sources
    Column("reading_id", BigInteger),  # the snapshot that a refresh in progress reads
)

# The refreshes of dynamic tables: the latest of each.
dynamic_refreshes = Table(
    "dynamic_refreshes",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("pass_id", String(40), nullable=False, index=True),
    Column("table_uuid", String(36), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("version", String(40), nullable=False),  # of the definition
    Column("state", String(10), nullable=False),  # running, done, failed
    Column("mode", String(12)),  # NO_DATA, INCREMENTAL, FULL; null until it is decided
    Column("reason", String(60)),  # a stable code
    Column("rows_added", BigInteger, nullable=False),
    Column("rows_removed", BigInteger, nullable=False),
    Column("rows_unchanged", BigInteger),  # of those that were computed; null if it is not known
    Column("changed_rows", BigInteger, nullable=False),  # of all sources
    Column("details", Text, nullable=False),  # JSON: what else was measured
    Column("sources", Text, nullable=False),  # JSON: the snapshots that were read
    Column("snapshot_id", BigInteger),  # null if it wrote none
    Column("error_code", String(60)),
    Column("error", Text),
    Column("requested_by", String(200), nullable=False),
    Column("pinned_ms", BigInteger, nullable=False),  # when the snapshots of its sources were pinned
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
)
Index("dynamic_refreshes_of_table", dynamic_refreshes.c.table_uuid, dynamic_refreshes.c.started_ms)
Index("dynamic_refreshes_by_place", dynamic_refreshes.c.tenant, dynamic_refreshes.c.started_ms)

# Credentials that Firn gave out. The secret is not here: a key is recognised by its hash.
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(16), primary_key=True),  # the public part of the key
    Column("hash", String(64), nullable=False),
    Column("tenant", String(63), nullable=False),  # whose administrators manage it
    Column("principal", String(100), nullable=False),
    Column("name", String(100), nullable=False),  # a note for people
    Column("roles", Text, nullable=False),  # such as `writer:acme/shop`, one per line
    Column("created_ms", BigInteger, nullable=False),
    Column("created_by", String(300), nullable=False),
    Column("expires_ms", BigInteger),
    Column("last_used_ms", BigInteger),  # to within some minutes
    Column("revoked_ms", BigInteger),
)
Index("api_keys_of_principal", api_keys.c.tenant, api_keys.c.principal)

# Every request while the audit log is on, for a retention period.
audit = Table(
    "audit",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("at_ms", BigInteger, nullable=False, index=True),
    Column("request_id", String(200), nullable=False),
    Column("principal", String(300), nullable=False),
    Column("credential", String(20), nullable=False),  # the id of an API key, `jwt`, or empty
    Column("client", String(100), nullable=False),  # an address
    Column("operation", String(100), nullable=False),
    Column("tenant", String(63), nullable=False),  # empty if the request named none
    Column("tables", Text, nullable=False),  # JSON
    Column("outcome", String(60), nullable=False),  # ok, or the code of the error
    Column("status", Integer, nullable=False),
    Column("duration_ms", BigInteger, nullable=False),
)
Index("audit_of_tenant", audit.c.tenant, audit.c.at_ms)

# Views for people who read the ledger with other programs; docs/reference/ledger.md describes them. Times are texts in
# UTC, as ISO 8601.
_MOMENT = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', {0} / 1000.0, 'unixepoch')",
    "postgresql": "to_char(to_timestamp({0} / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')",
}
_VIEWS = {
    "ingestion_log": """
        SELECT run_id, tenant AS tenant_id, namespace, table_name, ingest_date, file, content_hash, mode, state,
               records_read, records_ingested, records_rejected, file_bytes, snapshot_id, error, requested_by,
               {started_ms} AS started_at, {ended_ms} AS ended_at
        FROM ingestions""",
    "compaction_log": """
        SELECT id AS job_id, tenant AS tenant_id, namespace, table_name, state, requested_by, progress, details,
               {started_ms} AS started_at, {ended_ms} AS ended_at
        FROM jobs WHERE kind = 'COMPACT' AND started_ms IS NOT NULL""",
    "table_registry": """
        SELECT t.table_name, t.tenant AS tenant_id, t.namespace, t.table_uuid, t.table_file,
               {t.created_ms} AS created_at,
               count(DISTINCT CASE WHEN i.state = 'done' THEN i.ingest_date END) AS dates,
               min(CASE WHEN i.state = 'done' THEN i.ingest_date END) AS first_date,
               max(CASE WHEN i.state = 'done' THEN i.ingest_date END) AS last_date,
               count(CASE WHEN i.state = 'done' THEN 1 END) AS ingestions,
               count(CASE WHEN i.state = 'refused' THEN 1 END) AS refused,
               {max(i.ended_ms)} AS last_ingested_at
        FROM ingestion_tables AS t LEFT JOIN ingestions AS i ON i.table_uuid = t.table_uuid
        WHERE t.table_uuid NOT IN (SELECT table_uuid FROM places WHERE state = 'dropped')
        GROUP BY t.table_name, t.tenant, t.namespace, t.table_uuid, t.table_file, t.created_ms""",
}


def views(dialect: str) -> list[str]:
    """The statements that create the views."""
    moment = _MOMENT["postgresql" if dialect == "postgresql" else "sqlite"]

    def shown(found: re.Match[str]) -> str:
        return moment.format(found[1])

    texts = {name: re.sub(r"\{([^{}]+)\}", shown, text) for name, text in _VIEWS.items()}
    return [f"CREATE VIEW {name} AS {text}" for name, text in texts.items()]
