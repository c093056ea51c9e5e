"""Every metric that Firn tells: its name, what it counts, its labels. docs/metrics.md is made from this."""

from dataclasses import dataclass
from typing import Literal

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

Kind = Literal["counter", "gauge", "histogram"]

# The label `operation` of what is not one of the operations.
BULK, NONE = "BULK", "NONE"
OK = "ok"
# The outcomes of requests that are told as 0 until they happen.
EXPECTED = (OK, "INTERNAL_ERROR", "LEDGER_UNAVAILABLE")
# How a job ends.
ENDS = ("done", "failed", "cancelled", "interrupted")
# What jobs there are.
KINDS = (BULK, "COMPACT")
# How a compaction ends.
DONE, NOTHING, FAILED, CANCELLED = "done", "nothing", "failed", "cancelled"
TABLE = ("tenant", "namespace", "table")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LONG = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 4 * 3600)
_REQUESTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_RECORDS = (1, 10, 100, 1000, 10_000, 100_000, 500_000, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class Described:
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    known: tuple[str, ...] = ()
    """Values of its one label that are told before they happen, as 0: a rate sees no step in a series that begins."""

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """What a collector of our own fills."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        return kind(self.name, self.help, labels=self.labels)


# Counted when it happens.
HAPPENED = (
    Described(
        "firn_requests_total",
        "counter",
        "Requests answered, by operation and by outcome: ok, or the code of the error. BULK is a bulk load, "
        "NONE what names no operation.",
        ("operation", "code"),
    ),
    Described(
        "firn_request_seconds",
        "histogram",
        "From a request's arrival to its answer, or to the first bytes of an answer that is streamed.",
        ("operation",),
        _SECONDS,
    ),
    Described(
        "firn_query_seconds",
        "histogram",
        "How long QUERYs that succeeded took once their turn had come, streamed ones until their first rows.",
        (),
        _SECONDS,
    ),
    Described(
        "firn_streams_ended_total",
        "counter",
        "Streamed answers that are over: whole, or broken where the client left or something failed.",
        ("end",),
        known=("whole", "broken"),
    ),
    Described("firn_stream_seconds", "histogram", "From a streamed answer's first bytes to its end.", (), _LONG),
    Described("firn_batch_requests", "histogram", "How many WRITEs shared a commit.", (), _REQUESTS),
    Described("firn_batch_records", "histogram", "How many records the WRITEs had that shared a commit.", (), _RECORDS),
    Described(
        "firn_commit_seconds",
        "histogram",
        "How long changes that made a snapshot took: from the note in the ledger, over the work in Spark, to the "
        "commit. A batch of WRITEs is one.",
        ("operation",),
        _SECONDS,
    ),
    Described(
        "firn_commit_retries_total",
        "counter",
        "Changes that were tried again because another writer had committed before them.",
        ("operation",),
    ),
    Described(
        "firn_commit_conflicts_total",
        "counter",
        "Changes that were given up because other writers had committed before them each time.",
        ("operation",),
    ),
    Described("firn_small_file_checks_total", "counter", "How often the small files of a table were counted."),
    Described("firn_recommendations_total", "counter", "Checks that recommended a compaction."),
    Described(
        "firn_compactions_total",
        "counter",
        "Compactions that ended, by outcome: done, nothing (nothing was merged, and nothing went wrong), failed, "
        "cancelled. What the last two had committed by then stays.",
        ("outcome",),
        known=(DONE, NOTHING, FAILED, CANCELLED),
    ),
    Described("firn_compaction_seconds", "histogram", "How long compactions that merged something took.", (), _LONG),
    Described(
        "firn_compaction_files_total",
        "counter",
        "Data files of the tables that were compacted, before and after each compaction, added up.",
        ("when",),
        known=("before", "after"),
    ),
    Described(
        "firn_compaction_bytes_total",
        "counter",
        "Bytes of the tables that were compacted, before and after each compaction, added up.",
        ("when",),
        known=("before", "after"),
    ),
    Described(
        "firn_compaction_merged_files_total",
        "counter",
        "Files that compactions merged into others, however they ended.",
    ),
    Described(
        "firn_compaction_conflicts_total",
        "counter",
        "Groups of files that a compaction left out because other writers had changed them meanwhile.",
    ),
    Described("firn_compaction_failed_groups_total", "counter", "Groups of files that could not be merged."),
    Described(
        "firn_job_states_total",
        "counter",
        "How often jobs came to a state: queued, running, done, failed, cancelled, interrupted.",
        ("kind", "state"),
    ),
    Described(
        "firn_schedule_runs_total",
        "counter",
        "Runs of schedules that ended here: done, partly, failed, missed, or interrupted where the service stopped.",
        ("state",),
        known=("done", "partly", "failed", "missed", "interrupted"),
    ),
)

# Kept by table, for so many tables at most.
TABLES = (
    Described("firn_table_small_files", "gauge", "Small files of the table when they were last counted.", TABLE),
    Described(
        "firn_table_compaction_recommended",
        "gauge",
        "Whether the table was worth compacting (1) when its small files were last counted.",
        TABLE,
    ),
    Described(
        "firn_table_compactions_total",
        "counter",
        "Compactions of the table that ended, by outcome.",
        (*TABLE, "outcome"),
    ),
    Described(
        "firn_table_compaction_files",
        "gauge",
        "Data files of the table before and after its last compaction.",
        (*TABLE, "when"),
    ),
    Described(
        "firn_table_compaction_bytes",
        "gauge",
        "Bytes of the table before and after its last compaction.",
        (*TABLE, "when"),
    ),
)

# Read when somebody asks.
READ = (
    Described("firn_build_info", "gauge", "Always 1; the version is a label.", ("version",)),
    Described("firn_ready", "gauge", "Whether requests are served at full speed (1), as GET /ready says."),
    Described("firn_engine_up", "gauge", "Whether Spark is up (1)."),
    Described(
        "firn_engine_starts_total", "counter", "How often Spark was started; more than once means that it ended."
    ),
    Described("firn_spark_sessions", "gauge", "Spark sessions, idle and lent to a job.", ("state",)),
    Described("firn_requests_under_way", "gauge", "Requests that came in and are not answered yet."),
    Described("firn_requests_waiting", "gauge", "Requests that wait for a thread of their pool.", ("pool",)),
    Described("firn_request_memory_bytes", "gauge", "About how much memory the requests under way take."),
    Described("firn_write_queue_requests", "gauge", "WRITEs that wait for their table's next commit."),
    Described("firn_write_queue_tables", "gauge", "Tables for which WRITEs wait or are being committed."),
    Described("firn_unsettled_changes", "gauge", "Changes whose end could not be found out or noted yet."),
    Described(
        "firn_schedules_overdue", "gauge", "Schedules that have been due for a minute and that nobody has begun."
    ),
    Described("firn_bulk_loads", "gauge", "Bulk loads under way."),
    Described("firn_streams", "gauge", "Answers that are being streamed."),
    Described("firn_jobs", "gauge", "Jobs that have not ended, by kind and state.", ("kind", "state")),
)

ALL = (*HAPPENED, *TABLES, *READ)

# What the client library reads of the process, where there is a /proc.
PROCESS = (
    Described(
        "process_resident_memory_bytes", "gauge", "Memory that the service's process takes, Spark's not included."
    ),
    Described("process_virtual_memory_bytes", "gauge", "Its address space."),
    Described("process_cpu_seconds_total", "counter", "Its time on processors, Spark's not included."),
    Described("process_start_time_seconds", "gauge", "When it began, in seconds since 1970."),
    Described("process_open_fds", "gauge", "Files and connections it has open."),
    Described("process_max_fds", "gauge", "How many it may have open."),
)
