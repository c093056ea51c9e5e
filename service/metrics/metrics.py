"""What happened, counted for Prometheus: other rooms say it in one word, `GET /metrics` tells it."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.metrics.catalogue import ENDS, EXPECTED, HAPPENED, KINDS, READ, TABLES
from service.metrics.reads import Read, Reads
from service.metrics.tables import Series, TableSeries
from service.names import TableName


class Metrics:
    """One for the service. Its methods take microseconds and never fail whoever calls them."""

    def __init__(self, tables: int = 1000) -> None:
        """`tables` is how many tables have series of their own at most."""
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for kind in HAPPENED:
            if kind.kind == "counter":
                self._counters[kind.name] = Counter(kind.name, kind.help, kind.labels, registry=self.registry)
                for value in kind.known:
                    self._counters[kind.name].labels(value)
            else:
                self._histograms[kind.name] = Histogram(
                    kind.name, kind.help, kind.labels, registry=self.registry, buckets=kind.buckets
                )
        for job in KINDS:
            self._declare(job)
        self._tables = TableSeries(TABLES, tables)
        self._reads = Reads(READ)
        self.registry.register(self._tables)
        self.registry.register(self._reads)
        ProcessCollector(registry=self.registry)

    def read(self, name: str, read: Read) -> None:
        """Have a metric read by calling this whenever somebody asks for the metrics: quick, and without I/O."""
        self._reads.add(name, read)

    @property
    def unread(self) -> set[str]:
        """The metrics that nobody has told how to read."""
        return self._reads.missing

    def exposition(self, accept: str | None = None) -> tuple[bytes, str]:
        """All metrics as text in the form that an Accept header asks for, and its content type."""
        encode, content_type = choose_encoder(accept or "")
        return encode(_Told(self.registry)), content_type

    def serves(self, operation: str) -> None:
        """There is such an operation: what alerts look for is told as 0 until it happens."""
        for code in EXPECTED:
            self._counters["firn_requests_total"].labels(operation, code)

    def request(self, operation: str, code: str, seconds: float | None = None) -> None:
        """A request was answered: `code` is ok, or the error's."""
        self._counters["firn_requests_total"].labels(operation, code).inc()
        if seconds is not None:
            self._histograms["firn_request_seconds"].labels(operation).observe(seconds)

    def queried(self, seconds: float) -> None:
        """A QUERY found its rows."""
        self._histograms["firn_query_seconds"].observe(seconds)

    def streamed(self, seconds: float, *, whole: bool) -> None:
        """A streamed answer is over."""
        self._counters["firn_streams_ended_total"].labels("whole" if whole else "broken").inc()
        self._histograms["firn_stream_seconds"].observe(seconds)

    def batch(self, requests: int, records: int) -> None:
        """So many WRITEs were committed together."""
        self._histograms["firn_batch_requests"].observe(requests)
        self._histograms["firn_batch_records"].observe(records)

    def committed(self, operation: str, seconds: float) -> None:
        """A change made a snapshot."""
        self._histograms["firn_commit_seconds"].labels(operation).observe(seconds)
        for name in ("firn_commit_retries_total", "firn_commit_conflicts_total"):
            self._counters[name].labels(operation)  # told as 0 until it happens

    def retried(self, operation: str) -> None:
        """A change was beaten by another writer and is tried again."""
        self._counters["firn_commit_retries_total"].labels(operation).inc()

    def conflict(self, operation: str) -> None:
        """A change was beaten by other writers and given up."""
        self._counters["firn_commit_conflicts_total"].labels(operation).inc()

    def checked(self, table: TableName, small_files: int) -> None:
        """A table's small files were counted; where a compaction is worth it, `recommended` follows."""
        self._counters["firn_small_file_checks_total"].inc()
        self._tables.set(table, {("firn_table_small_files",): small_files, ("firn_table_compaction_recommended",): 0})

    def recommended(self, table: TableName) -> None:
        """A compaction was recommended."""
        self._counters["firn_recommendations_total"].inc()
        self._tables.set(table, {("firn_table_compaction_recommended",): 1})

    def looked_at(self, table: TableName, small_files: int, *, recommended: bool) -> None:
        """A table's small files are so many now, whatever they were counted for."""
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
        """A compaction ended: done, nothing, failed or cancelled. Where it merged files its figures are added up.

        What small files are left, `looked_at` is told after this.
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
        """A table is gone, and so are its series."""
        self._tables.forget(table)

    def job(self, kind: str, state: str) -> None:
        """A job came to a state."""
        self._counters["firn_job_states_total"].labels(kind, state).inc()
        self._declare(kind)

    def schedule_ran(self, state: str) -> None:
        """A run of a schedule ended, or was missed."""
        self._counters["firn_schedule_runs_total"].labels(state).inc()

    def _declare(self, kind: str) -> None:
        for end in ENDS:
            self._counters["firn_job_states_total"].labels(kind, end)  # told as 0 until it happens


class _Told(Collector):
    """A registry without the series that say when a counter was made: they double the number of series for nothing."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            made = f"{metric.name}_created"
            metric.samples = [sample for sample in metric.samples if sample.name != made]
            yield metric
