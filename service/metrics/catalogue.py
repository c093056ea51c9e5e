"""Every metric of Firn: its name, what it counts, its labels. docs/reference/metrics.md is generated from this."""

from dataclasses import dataclass
from typing import Literal

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

Kind = Literal["counter", "gauge", "histogram"]

# The label `operation` of a bulk load, and of a request that names no operation.
BULK, NONE = "BULK", "NONE"
OK = "ok"
# The outcomes of requests that are shown as 0 until they occur.
PREDECLARED_CODES = (OK, "INTERNAL_ERROR", "LEDGER_UNAVAILABLE")
# The final states of jobs.
JOB_ENDS = ("done", "failed", "cancelled", "interrupted")
# The kinds of requests that are admitted, and what happens to them.
REQUEST_KINDS = ("queries", "writes", "maintenance")
ADMISSIONS = ("admitted", "tenant_limit", "service_limit")
# The kinds of jobs.
JOB_KINDS = (BULK, "COMPACT", "INGEST")
# The modes and ends of refreshes of dynamic tables.
REFRESH_MODES, REFRESH_ENDS = ("NO_DATA", "INCREMENTAL", "FULL", NONE), ("done", "failed")
# The outcomes of compactions.
DONE, NOTHING, FAILED, CANCELLED = "done", "nothing", "failed", "cancelled"
TABLE = ("tenant", "namespace", "table")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LONG = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 4 * 3600)
_REQUESTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_RECORDS = (1, 10, 100, 1000, 10_000, 100_000, 500_000, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class MetricSpec:
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    known: tuple[str, ...] = ()
    """Values of its only label that are shown as 0 from the start: `rate` misses the first step of a new series."""

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """An empty metric family, for our own collectors to fill."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        return kind(self.name, self.help, labels=self.labels)


# Counted when something happens.
RECORDED = (
    MetricSpec(
        "firn_requests_total",
        "counter",
        "Requests answered, by operation and by outcome: ok, or the code of the error. BULK is a bulk load, "
        "NONE a request that names no operation.",
        ("operation", "code"),
    ),
    MetricSpec(
        "firn_request_seconds",
        "histogram",
        "Time from a request's arrival to its response, or to the first bytes of a streamed response.",
        ("operation",),
        _SECONDS,
    ),
    MetricSpec(
        "firn_admissions_total",
        "counter",
        "Requests by kind (queries, writes, maintenance) and by outcome: admitted, or refused because of the limit of "
        "their tenant (tenant_limit) or of all tenants (service_limit).",
        ("kind", "outcome"),
    ),
    MetricSpec(
        "firn_query_seconds",
        "histogram",
        "Duration of successful QUERYs without the time in the queue; of streamed ones, until their first rows.",
        (),
        _SECONDS,
    ),
    MetricSpec(
        "firn_streams_ended_total",
        "counter",
        "Streamed responses that ended: complete, or broken if the client disconnected or something failed.",
        ("outcome",),
        known=("complete", "broken"),
    ),
    MetricSpec(
        "firn_stream_seconds", "histogram", "Time from a streamed response's first bytes to its end.", (), _LONG
    ),
    MetricSpec("firn_batch_requests", "histogram", "WRITEs and edits that shared a commit.", (), _REQUESTS),
    MetricSpec("firn_batch_records", "histogram", "Records that they wrote.", (), _RECORDS),
    MetricSpec(
        "firn_commit_seconds",
        "histogram",
        "Duration of changes that made a snapshot: from the entry in the ledger, through the work in Spark, to the "
        "commit. A batch of WRITEs counts as one change.",
        ("operation",),
        _SECONDS,
    ),
    MetricSpec(
        "firn_commit_retries_total",
        "counter",
        "Changes that were retried because another writer had committed before them.",
        ("operation",),
    ),
    MetricSpec(
        "firn_commit_conflicts_total",
        "counter",
        "Changes that failed because other writers had committed before every one of their tries.",
        ("operation",),
    ),
    MetricSpec("firn_small_file_checks_total", "counter", "Checks that counted the small files of a table."),
    MetricSpec("firn_recommendations_total", "counter", "Checks that recommended a compaction."),
    MetricSpec(
        "firn_compactions_total",
        "counter",
        "Compactions that ended, by outcome: done, nothing (nothing was merged, and nothing went wrong), failed, "
        "cancelled. What the last two had already committed stays.",
        ("outcome",),
        known=(DONE, NOTHING, FAILED, CANCELLED),
    ),
    MetricSpec("firn_compaction_seconds", "histogram", "Duration of compactions that merged something.", (), _LONG),
    MetricSpec(
        "firn_compaction_files_total",
        "counter",
        "Data files of the compacted tables, before and after each compaction, added up.",
        ("when",),
        known=("before", "after"),
    ),
    MetricSpec(
        "firn_compaction_bytes_total",
        "counter",
        "Bytes of the compacted tables, before and after each compaction, added up.",
        ("when",),
        known=("before", "after"),
    ),
    MetricSpec(
        "firn_compaction_merged_files_total",
        "counter",
        "Files that compactions merged into others, failed and cancelled compactions included.",
    ),
    MetricSpec(
        "firn_compaction_conflicts_total",
        "counter",
        "Groups of files that a compaction left out because other writers changed them in the meantime.",
    ),
    MetricSpec("firn_compaction_failed_groups_total", "counter", "Groups of files that could not be merged."),
    MetricSpec(
        "firn_job_states_total",
        "counter",
        "Jobs that reached a state: queued, running, done, failed, cancelled, interrupted.",
        ("kind", "state"),
    ),
    MetricSpec(
        "firn_schedule_runs_total",
        "counter",
        "Runs of schedules that ended on this instance: done, partly, failed, missed, or interrupted by a stop.",
        ("state",),
        known=("done", "partly", "failed", "missed", "interrupted"),
    ),
    MetricSpec(
        "firn_dynamic_refreshes_total",
        "counter",
        "Refreshes of dynamic tables that ended, by mode (NO_DATA, INCREMENTAL, FULL; NONE before it is known) and by "
        "state: done, failed.",
        ("mode", "state"),
    ),
    MetricSpec(
        "firn_dynamic_refresh_seconds",
        "histogram",
        "Duration of refreshes of dynamic tables that succeeded, with the wait for a Spark session.",
        ("mode",),
        _LONG,
    ),
    MetricSpec(
        "firn_dynamic_rows_total",
        "counter",
        "Rows that refreshes added to dynamic tables and removed from them; a changed row counts as both.",
        ("change",),
        known=("added", "removed"),
    ),
)

# Kept per table, for a bounded number of tables.
PER_TABLE = (
    MetricSpec("firn_table_small_files", "gauge", "Small files of the table at the last check.", TABLE),
    MetricSpec(
        "firn_table_compaction_recommended",
        "gauge",
        "Whether the last check recommended a compaction of the table (1).",
        TABLE,
    ),
    MetricSpec(
        "firn_table_compactions_total",
        "counter",
        "Compactions of the table that ended, by outcome.",
        (*TABLE, "outcome"),
    ),
    MetricSpec(
        "firn_table_compaction_files",
        "gauge",
        "Data files of the table before and after its last compaction.",
        (*TABLE, "when"),
    ),
    MetricSpec(
        "firn_table_compaction_bytes",
        "gauge",
        "Bytes of the table before and after its last compaction.",
        (*TABLE, "when"),
    ),
    MetricSpec(
        "firn_table_dynamic_lag_seconds",
        "gauge",
        "How far the rows of a dynamic table lag behind its base tables, at the worker's last round: the age of the "
        "oldest change that is missing; 0 if none is, and since its creation if it was never refreshed.",
        TABLE,
    ),
    MetricSpec("firn_table_dynamic_target_lag_seconds", "gauge", "The target lag of a dynamic table.", TABLE),
    MetricSpec(
        "firn_table_dynamic_failures",
        "gauge",
        "Refreshes of a dynamic table that failed in a row, without those that will pass by themselves.",
        TABLE,
    ),
)

# Read when they are scraped.
GAUGES = (
    MetricSpec("firn_build_info", "gauge", "Always 1; the version is a label.", ("version",)),
    MetricSpec("firn_ready", "gauge", "Whether requests are served at full speed (1), as in GET /ready."),
    MetricSpec("firn_engine_up", "gauge", "Whether Spark is up (1), not counting a process for queries."),
    MetricSpec(
        "firn_engine_starts_total",
        "counter",
        "Starts of Spark, not counting a process for queries; more than one means that it ended unexpectedly.",
    ),
    MetricSpec(
        "firn_spark_sessions",
        "gauge",
        "Spark sessions, idle and busy, without those of a process for queries.",
        ("state",),
    ),
    MetricSpec(
        "firn_spark_session_wait_seconds",
        "gauge",
        "Time that the request at the head of the queue for a Spark session has waited.",
    ),
    MetricSpec(
        "firn_query_process_up",
        "gauge",
        "Whether the process for queries is up (1); 0 without such a process.",
    ),
    MetricSpec("firn_query_process_starts_total", "counter", "Starts of the process for queries."),
    MetricSpec(
        "firn_query_process_ends_total",
        "counter",
        "Unexpected ends of the process for queries, by reason: memory (its heap was full), crash, killed (by another "
        "program), hang (it did not respond), stuck (a cancelled query did not end), start (it did not start).",
        ("reason",),
    ),
    MetricSpec("firn_query_sessions", "gauge", "Spark sessions of the process for queries, idle and busy.", ("state",)),
    MetricSpec(
        "firn_query_session_wait_seconds",
        "gauge",
        "Time that the query at the head of the queue for one of these sessions has waited.",
    ),
    MetricSpec("firn_requests_in_progress", "gauge", "Requests received and not answered yet."),
    MetricSpec("firn_requests_waiting", "gauge", "Requests that wait for a thread of their pool.", ("pool",)),
    MetricSpec(
        "firn_tenant_requests",
        "gauge",
        "Requests that wait or run, of the 20 tenants that have the most.",
        ("tenant", "kind"),
    ),
    MetricSpec("firn_request_memory_bytes", "gauge", "Estimated memory of the requests in progress."),
    MetricSpec("firn_write_queue_requests", "gauge", "WRITEs and edits that wait for their table's next commit."),
    MetricSpec("firn_write_queue_tables", "gauge", "Tables for which such requests wait or are being committed."),
    MetricSpec("firn_unresolved_changes", "gauge", "Changes whose outcome is unknown or not recorded yet."),
    MetricSpec(
        "firn_schedules_overdue", "gauge", "Schedules that have been due for a minute and that no instance has started."
    ),
    MetricSpec("firn_bulk_loads", "gauge", "Bulk loads in progress."),
    MetricSpec("firn_streams", "gauge", "Responses being streamed."),
    MetricSpec(
        "firn_dynamic_tables",
        "gauge",
        "Dynamic tables that this instance's worker looks after, by state: active, suspended, failed.",
        ("state",),
    ),
    MetricSpec("firn_dynamic_tables_late", "gauge", "Those whose lag is above their target."),
    MetricSpec("firn_jobs", "gauge", "Jobs that have not ended, by kind and state.", ("kind", "state")),
)

ALL = (*RECORDED, *PER_TABLE, *GAUGES)

# Read from /proc by the client library, on systems that have it.
PROCESS = (
    MetricSpec("process_resident_memory_bytes", "gauge", "Memory of the service's process, without Spark's."),
    MetricSpec("process_virtual_memory_bytes", "gauge", "Address space of the process."),
    MetricSpec("process_cpu_seconds_total", "counter", "CPU time of the process, without Spark's."),
    MetricSpec("process_start_time_seconds", "gauge", "Start time of the process, in seconds since 1970."),
    MetricSpec("process_open_fds", "gauge", "Open files and connections."),
    MetricSpec("process_max_fds", "gauge", "Maximum number of open files and connections."),
)
