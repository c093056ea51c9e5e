"""Which tables are worth compacting, from metadata, the query log and the jobs of past compactions."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.catalog.files.data_files import list_files
from service.catalog.files.small import MIB, find_small_files, small_bytes
from service.catalog.tables import Catalog, Table
from service.errors import CatalogUnavailable, FirnError, TableNotFound
from service.ledger.jobs import JobRecord, JobRecords
from service.maintenance.advise import costs
from service.maintenance.advise.costs import Forecast, MergeSize, PastCompaction, QueryCosts, RewriteCosts
from service.maintenance.advise.query_log import QueryLog
from service.metrics.metrics import Metrics
from service.model.names import TableName
from service.model.properties import CompactionPolicy, compaction_policy, is_online, target_file_size_mb
from service.settings import IcebergSettings
from service.settings.kinds import Mode

log = logging.getLogger("firn.maintenance")

ENOUGH_SAMPLES = 5
# The number of compactions that estimates are learned from.
_PAST = 500
# Later queries say little about a compaction: there are new small files by then.
_SOON_MS = 6 * 3_600_000


@dataclass(frozen=True)
class CompactionHistory:
    """What was learned from all tables together, and when each was last compacted."""

    opening_ms: float
    rewriting: RewriteCosts
    compacted_ms: Mapping[str, int]


@dataclass(frozen=True)
class Advice:
    """What is known about one table's small files, and whether to merge them."""

    name: TableName
    table_uuid: str
    policy: CompactionPolicy
    recommended: bool
    """By the rule of the check after a WRITE: enough small files in one partition, and compaction is not off."""
    small: int
    worth_merging: int
    bytes: int
    merge: MergeSize
    queries: QueryCosts
    forecast: Forecast
    online: bool = True
    heavy: int = 0
    """How many of those worth merging have a good size, but many deleted rows."""
    light: int = 0
    """How many of them have a good size, few deleted rows, and delete files."""

    @property
    def mode(self) -> Mode:
        return self.policy.mode if self.policy.enabled else "off"

    @property
    def rank(self) -> tuple[float, int, str, str]:
        """A sort key that puts the most worthwhile first."""
        return -self.forecast.worth, -self.small, self.name.namespace, self.name.table


@dataclass(frozen=True)
class Adviser:
    """Advises on compaction. It changes nothing but metrics, and the jobs' records of whether predictions held."""

    settings: IcebergSettings
    catalog: Catalog
    records: JobRecords
    queries: QueryLog
    metrics: Metrics = field(default_factory=Metrics)

    def evidence(self) -> CompactionHistory:
        merges = list(self._merges())
        ended: dict[str, int] = {}
        for job, _ in merges:
            ended[job.table_uuid] = max(ended.get(job.table_uuid, 0), job.ended_ms or 0)
        return CompactionHistory(
            costs.opening_ms(self.queries.contrasts()),
            costs.rewriting(_done(stats, _object(job, "predicted")) for job, stats in merges),
            ended,
        )

    def of(
        self, table: Table, evidence: CompactionHistory, *, at_once: bool = False, merge: MergeSize | None = None
    ) -> Advice:
        """Advice on merging all small files of a table; with `at_once`, as many as one compaction merges; with `merge`,
        those that were planned already."""
        policy = compaction_policy(table.properties, self.settings.compaction)
        target_mb = target_file_size_mb(table.properties, self.settings)
        files = list_files(table)
        found = find_small_files(files.data, small_bytes(policy, target_mb), policy.min_files_to_compact)
        online = is_online(table.properties)
        recommended = bool(found.worth_merging) and policy.active and online
        self.metrics.counted_small_files(table.name, len(found.small), recommended=recommended)
        if merge is None:
            most = policy.max_files_per_compaction if at_once else None
            merge = costs.merged(len(files.data), found, target_mb * MIB, most)
        # What was measured before the last compaction no longer applies.
        since = evidence.compacted_ms.get(table.uuid, 0)
        queries = costs.queries_now(self.queries.samples(table.uuid, since), self.queries.per_hour(table.uuid))
        return Advice(
            name=table.name,
            table_uuid=table.uuid,
            policy=policy,
            recommended=recommended,
            online=online,
            small=len(found.small),
            worth_merging=len(found.worth_merging),
            heavy=found.heavy,
            light=found.light,
            bytes=files.bytes,
            merge=merge,
            queries=queries,
            forecast=costs.forecast(queries, merge, evidence.opening_ms, evidence.rewriting, policy.auto_horizon_hours),
        )

    def ranked(
        self, tenant: str, namespace: str | None = None, wanted: Callable[[TableName], bool] = lambda name: True
    ) -> list[Advice]:
        """The wanted tables of a tenant, or of one of its namespaces, the most worthwhile first."""
        evidence = self.evidence()
        found = (self._of(name, evidence) for name in self._names(tenant, namespace) if wanted(name))
        return sorted((advice for advice in found if advice), key=lambda advice: advice.rank)

    def predict(self, table: Table, merge: MergeSize | None = None) -> dict[str, Any]:
        """What a compaction is expected to do if it starts now, in the form that its job records."""
        return predicted(self.of(table, self.evidence(), at_once=True, merge=merge))

    def complete(self) -> int:
        """Record how predictions compare with what queries took since then; returns the number of these compactions."""
        if self.queries.empty:
            return 0
        next_started: dict[str, int] = {}
        completed = 0
        for job, _ in self._merges():  # newest first
            until = min(next_started.get(job.table_uuid, 1 << 62), (job.ended_ms or 0) + _SOON_MS)
            next_started[job.table_uuid] = job.started_ms or 0
            expected = _object(job, "predicted")
            if not expected or "actual_query_ms" in expected:
                continue
            after = [s for s in self.queries.samples(job.table_uuid, job.ended_ms or 0) if s.at_ms < until]
            alone = sum(sample.total_ms is not None for sample in after)
            if alone < ENOUGH_SAMPLES and len(after) < 4 * ENOUGH_SAMPLES:
                continue
            self.records.note(job.id, predicted={**expected, **_actual(expected, costs.queries_now(after, 0))})
            completed += 1
        return completed

    def _merges(self) -> Iterator[tuple[JobRecord, dict[str, Any]]]:
        """The latest compactions that merged files, with their figures, newest first."""
        for job in self.records.log("COMPACT", _PAST):
            stats = _object(job, "stats")
            if job.state == "done" and _number(stats, "files_compacted") > 0:
                yield job, stats

    def _names(self, tenant: str, namespace: str | None) -> Iterator[TableName]:
        namespaces = [n for _, n in self.catalog.list_namespaces(tenant)] if namespace is None else [namespace]
        for each in namespaces:
            for table in self.catalog.list_tables(tenant, each):
                yield TableName(tenant, each, table)

    def _of(self, name: TableName, evidence: CompactionHistory) -> Advice | None:
        try:
            return self.of(self.catalog.load(name), evidence)
        except TableNotFound:  # dropped in the meantime
            return None
        except CatalogUnavailable:
            raise
        except FirnError as e:  # one unreadable table must not hide the others
            log.warning("the small files of %s could not be read: %s", name, e.message)
            return None


def predicted(advice: Advice) -> dict[str, Any]:
    """The prediction in an advice, for the job's record."""
    queries, expected = advice.queries, advice.forecast
    before = queries.query_ms
    return {
        "files_before": advice.merge.files,
        "files_after": advice.merge.files_after,
        "files_merged": advice.merge.merged,
        "bytes_merged": advice.merge.bytes_merged,
        "time_ms": round(expected.cost_ms),
        "queries_per_hour": round(queries.per_hour, 2),
        "planning_ms_before": _rounded(queries.planning_ms),
        "files_opened_before": _rounded(queries.files_opened),
        "query_ms_before": _rounded(before),
        "query_ms": None if before is None else _rounded(before - expected.saving_ms),
        "saving_ms": _rounded(expected.saving_ms),
        "saving_ms_per_hour": _rounded(expected.saving_ms_per_hour),
        "worth": round(expected.worth, 3),
    }


def why(advice: Advice) -> str:
    """The advice in one sentence, with its numbers."""
    if not advice.online:
        return "the table is offline, so that it is not compacted; SET_ONLINE takes it back"
    if not (advice.small or advice.light):
        return "there are no small files"
    merge, queries, expected, policy = advice.merge, advice.queries, advice.forecast, advice.policy
    small = f"{advice.small} of {merge.files} file(s) are small"
    if advice.heavy:
        small += f" ({advice.heavy} because of their deleted rows)"
    if advice.light:
        small += f", and {advice.light} more have delete files"
    if not advice.worth_merging:
        return f"{small}, but no partition has the {policy.min_files_to_compact} that make merging worth it"
    sentence = f"{small}; merging {advice.worth_merging} of them would leave {merge.files_after} file(s) in all"
    if merge.deletes:
        sentence += f" and remove {merge.deletes} delete file(s)"
    if merge.opens_less:
        sentence += f" and take about {expected.cost_ms / 1000:.1f} s"
    if queries.files_opened is None:
        sentence += ", but no query of the table was measured since its last compaction or the start of the service"
    elif merge.opens_less:
        sentence += (
            f": {queries.per_hour:.1f} queries an hour open {queries.files_opened:.1f} file(s) and plan for "
            f"{queries.planning_ms:.0f} ms each, and would save {expected.saving_ms:.1f} ms each, "
            f"{expected.saving_ms_per_hour / 1000:.1f} s an hour"
        )
    if advice.mode == "off":
        sentence += "; compaction is off for this table"
    return sentence


def _actual(expected: Mapping[str, Any], after: QueryCosts) -> dict[str, Any]:
    before = expected.get("query_ms_before")
    saving = before - after.query_ms if isinstance(before, int | float) and after.query_ms is not None else None
    return {
        "actual_query_ms": _rounded(after.query_ms),
        "actual_planning_ms": _rounded(after.planning_ms),
        "actual_files_opened": _rounded(after.files_opened),
        "actual_saving_ms": _rounded(saving),
        "actual_samples": after.samples,
    }


def _done(stats: Mapping[str, Any], expected: Mapping[str, Any]) -> PastCompaction:
    files = _number(stats, "files_compacted")
    size = _number(stats, "bytes_compacted") or _number(expected, "bytes_merged")
    if not size:  # the average size of so many files of this table
        size = _number(stats, "bytes_before") * min(1.0, files / max(_number(stats, "files_before"), 1))
    return PastCompaction(round(files), round(size), _number(stats, "compaction_time_ms"))


def _object(job: JobRecord, name: str) -> dict[str, Any]:
    value = job.details.get(name)
    return value if isinstance(value, dict) else {}


def _number(values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    return value if isinstance(value, int | float) else 0.0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
