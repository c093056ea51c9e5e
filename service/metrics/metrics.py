"""Metrics for Prometheus: every package records events here, and `GET /metrics` shows them."""

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

from service.metrics.catalogue import (
    ADMISSIONS,
    GAUGES,
    JOB_ENDS,
    JOB_KINDS,
    PER_TABLE,
    PREDECLARED_CODES,
    RECORDED,
    REFRESH_ENDS,
    REFRESH_MODES,
    REQUEST_KINDS,
)
from service.metrics.collectors import Gauges, ReadGauge, Series, TableSeries, WithoutCreated
from service.model.names import TableName

_TENANTS = 20


class Metrics:
    """All metrics of the service. Its methods take microseconds and do not raise."""

    def __init__(self, tables: int = 1000) -> None:
        """`tables` is the maximum number of tables with series of their own."""
        self.registry = registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for spec in RECORDED:
            if spec.kind == "counter":
                self._counters[spec.name] = counter = Counter(spec.name, spec.help, spec.labels, registry=registry)
                for value in spec.known:
                    counter.labels(value)
            else:
                histogram = Histogram(spec.name, spec.help, spec.labels, registry=registry, buckets=spec.buckets)
                self._histograms[spec.name] = histogram
        for job in JOB_KINDS:
            self._declare(job)
        for kind in REQUEST_KINDS:
            for outcome in ADMISSIONS:
                self._counters["firn_admissions_total"].labels(kind, outcome)
        for mode in REFRESH_MODES:
            for state in REFRESH_ENDS:
                self._counters["firn_dynamic_refreshes_total"].labels(mode, state)
        self.tenants = min(_TENANTS, tables)
        """The maximum number of tenants with series of their own."""
        self._tables = TableSeries(PER_TABLE, tables)
        self._reads = Gauges(GAUGES)
        registry.register(self._tables)
        registry.register(self._reads)
        ProcessCollector(registry=registry)

    def read(self, name: str, read: ReadGauge) -> None:
        """Set the function that reads a metric on each scrape; it must be quick and do no I/O."""
        self._reads.add(name, read)

    @property
    def unread(self) -> set[str]:
        """The metrics without a function that reads them."""
        return self._reads.missing

    def exposition(self, accept: str | None = None) -> tuple[bytes, str]:
        """All metrics as text in the format that an Accept header prefers, and its content type."""
        encode, content_type = choose_encoder(accept or "")
        return encode(WithoutCreated(self.registry)), content_type

    def serves(self, operation: str) -> None:
        """Show the outcomes of an operation that alerts look for as 0 until they occur."""
        for code in PREDECLARED_CODES:
            self._counters["firn_requests_total"].labels(operation, code)

    def request(self, operation: str, code: str, seconds: float | None = None) -> None:
        """A request was answered; `code` is ok, or the error's code."""
        self._counters["firn_requests_total"].labels(operation, code).inc()
        if seconds is not None:
            self._histograms["firn_request_seconds"].labels(operation).observe(seconds)

    def admitted(self, kind: str, outcome: str) -> None:
        """A request of a kind was admitted, or refused because of a limit."""
        self._counters["firn_admissions_total"].labels(kind, outcome).inc()

    def queried(self, seconds: float) -> None:
        """A QUERY found its rows."""
        self._histograms["firn_query_seconds"].observe(seconds)

    def streamed(self, seconds: float, *, whole: bool) -> None:
        """A streamed response ended."""
        self._counters["firn_streams_ended_total"].labels("complete" if whole else "broken").inc()
        self._histograms["firn_stream_seconds"].observe(seconds)

    def batch(self, requests: int, records: int) -> None:
        """A number of WRITEs were committed together."""
        self._histograms["firn_batch_requests"].observe(requests)
        self._histograms["firn_batch_records"].observe(records)

    def committed(self, operation: str, seconds: float) -> None:
        """A change made a snapshot."""
        self._histograms["firn_commit_seconds"].labels(operation).observe(seconds)
        for name in ("firn_commit_retries_total", "firn_commit_conflicts_total"):
            self._counters[name].labels(operation)  # shown as 0 until one occurs

    def retried(self, operation: str) -> None:
        """Another writer committed before a change, which is retried."""
        self._counters["firn_commit_retries_total"].labels(operation).inc()

    def conflict(self, operation: str) -> None:
        """A change failed because other writers committed before each of its tries."""
        self._counters["firn_commit_conflicts_total"].labels(operation).inc()

    def checked(self, table: TableName, small_files: int) -> None:
        """A check counted a table's small files; if it recommends a compaction, `recommended` is called next."""
        self._counters["firn_small_file_checks_total"].inc()
        self._tables.set(table, {("firn_table_small_files",): small_files, ("firn_table_compaction_recommended",): 0})

    def recommended(self, table: TableName) -> None:
        """A compaction was recommended."""
        self._counters["firn_recommendations_total"].inc()
        self._tables.set(table, {("firn_table_compaction_recommended",): 1})

    def counted_small_files(self, table: TableName, small_files: int, *, recommended: bool) -> None:
        """A table's small files were counted outside of a check."""
        now: dict[Series, float] = {("firn_table_small_files",): small_files}
        self._tables.refresh(table, {**now, ("firn_table_compaction_recommended",): recommended})

    def compacted(
        self,
        table: TableName,
        outcome: str,
        files_before: int = 0,
        files_after: int = 0,
        files_compacted: int = 0,
        bytes_before: int = 0,
        bytes_after: int = 0,
        conflicts: int = 0,
        groups_failed: int = 0,
        seconds: float = 0,
    ) -> None:
        """A compaction ended: done, nothing, failed or cancelled. If it merged files, its figures are added up.

        `counted_small_files` is called next, with the small files that are left.
        """
        self._counters["firn_compactions_total"].labels(outcome).inc()
        self._counters["firn_compaction_conflicts_total"].inc(conflicts)
        self._counters["firn_compaction_failed_groups_total"].inc(groups_failed)
        self._tables.add(table, ("firn_table_compactions_total", outcome))
        if not files_compacted:
            return
        self._histograms["firn_compaction_seconds"].observe(seconds)
        self._counters["firn_compaction_merged_files_total"].inc(files_compacted)
        files, size = self._counters["firn_compaction_files_total"], self._counters["firn_compaction_bytes_total"]
        last: dict[Series, float] = {}
        for when, count, length in (("before", files_before, bytes_before), ("after", files_after, bytes_after)):
            files.labels(when).inc(count)
            size.labels(when).inc(length)
            last["firn_table_compaction_files", when] = count
            last["firn_table_compaction_bytes", when] = length
        self._tables.set(table, last)

    def dropped(self, table: TableName) -> None:
        """A table was dropped: remove its series."""
        self._tables.forget(table)

    def job(self, kind: str, state: str) -> None:
        """A job reached a state."""
        self._counters["firn_job_states_total"].labels(kind, state).inc()
        self._declare(kind)

    def schedule_ran(self, state: str) -> None:
        """A run of a schedule ended, or was missed."""
        self._counters["firn_schedule_runs_total"].labels(state).inc()

    def refreshed(self, mode: str, state: str, seconds: float, added: int = 0, removed: int = 0) -> None:
        """A refresh of a dynamic table ended: done or failed."""
        self._counters["firn_dynamic_refreshes_total"].labels(mode, state).inc()
        if state == "done":
            self._histograms["firn_dynamic_refresh_seconds"].labels(mode).observe(seconds)
        self._counters["firn_dynamic_rows_total"].labels("added").inc(added)
        self._counters["firn_dynamic_rows_total"].labels("removed").inc(removed)

    def lagged(self, table: TableName, lag_s: float, target_s: float | None, failures: int) -> None:
        """A round of the worker saw how far a dynamic table lags behind its base tables."""
        now: dict[Series, float] = {("firn_table_dynamic_lag_seconds",): lag_s}
        now["firn_table_dynamic_failures",] = failures
        if target_s is not None:
            now["firn_table_dynamic_target_lag_seconds",] = target_s
        self._tables.refresh(table, now)

    def _declare(self, kind: str) -> None:
        for end in JOB_ENDS:
            self._counters["firn_job_states_total"].labels(kind, end)  # shown as 0 until one occurs
