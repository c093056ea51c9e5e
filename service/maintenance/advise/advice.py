"""Which tables are worth compacting, in numbers: from metadata, the query log and the notes of past compactions."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service.catalog.files.data_files import list_files
from service.catalog.files.small import MIB, find_small_files, small_bytes
from service.catalog.tables import Catalog, Table
from service.errors import CatalogUnavailable, FirnError, TableNotFound
from service.ledger.jobs import JobRecord, JobRecords
from service.maintenance.advise.costs import (
    Forecast,
    MergeSize,
    PastCompaction,
    QueryCosts,
    RewriteCosts,
    forecast,
    merged,
    opening_ms,
    queries_now,
    rewriting,
)
from service.maintenance.advise.query_log import QueryLog
from service.metrics.metrics import Metrics
from service.model.names import TableName
from service.model.properties import CompactionPolicy, compaction_policy, is_online, target_file_size_mb
from service.settings import IcebergSettings, Mode

log = logging.getLogger("firn.maintenance")

ENOUGH_SAMPLES = 5
_PAST = 500  # compactions that estimates are learned from
# Later queries say little of a compaction: there are new small files by then.
_SOON_MS = 6 * 3_600_000


@dataclass(frozen=True)
class CompactionHistory:
    """What is learned from all tables together, and when each was last compacted."""

    opening_ms: float
    rewriting: RewriteCosts
    compacted_ms: Mapping[str, int]


@dataclass(frozen=True)
class Advice:
    """What is known of one table's small files, and whether to merge them."""

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
    """How many of those worth merging are of a good size, with much deleted in them."""

    @property
    def mode(self) -> Mode:
        return self.policy.mode if self.policy.enabled else "off"

    @property
    def rank(self) -> tuple[float, int, str, str]:
        """What sorts the most worthwhile first."""
        return -self.forecast.worth, -self.small, self.name.namespace, self.name.table


class Adviser:
    """Reads and reckons; it changes nothing but metrics, and what notes say of predictions that came true or not."""

    def __init__(
        self,
        settings: IcebergSettings,
        catalog: Catalog,
        records: JobRecords,
        queries: QueryLog,
        metrics: Metrics | None = None,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._records = records
        self._queries = queries
        self._metrics = metrics or Metrics()

    def evidence(self) -> CompactionHistory:
        merges = list(self._merges())
        ended: dict[str, int] = {}
        for job, _ in merges:
            ended[job.table_uuid] = max(ended.get(job.table_uuid, 0), job.ended_ms or 0)
        return CompactionHistory(
            opening_ms(self._queries.contrasts()),
            rewriting(_done(stats, _object(job, "predicted")) for job, stats in merges),
            ended,
        )

    def of(
        self, table: Table, evidence: CompactionHistory, *, at_once: bool = False, merge: MergeSize | None = None
    ) -> Advice:
        """What is known of a table as it is, were all its small files merged.

        Or as many as one compaction merges at once, or as a `merge` says that was planned already.
        """
        policy = compaction_policy(table.properties, self._settings.compaction)
        target_mb = target_file_size_mb(table.properties, self._settings)
        files = list_files(table)
        found = find_small_files(files.data, small_bytes(policy, target_mb), policy.min_files_to_compact)
        online = is_online(table.properties)
        recommended = bool(found.worth_merging) and policy.active and online
        self._metrics.looked_at(table.name, len(found.small), recommended=recommended)
        if merge is None:
            most = policy.max_files_per_compaction if at_once else None
            merge = merged(len(files.data), found, target_mb * MIB, most)
        # Whatever was measured before the last compaction is not how things are now.
        since = evidence.compacted_ms.get(table.uuid, 0)
        queries = queries_now(self._queries.samples(table.uuid, since), self._queries.per_hour(table.uuid))
        return Advice(
            name=table.name,
            table_uuid=table.uuid,
            policy=policy,
            recommended=recommended,
            online=online,
            small=len(found.small),
            worth_merging=len(found.worth_merging),
            heavy=found.heavy,
            bytes=files.bytes,
            merge=merge,
            queries=queries,
            forecast=forecast(queries, merge, evidence.opening_ms, evidence.rewriting, policy.auto_horizon_hours),
        )

    def ranked(self, tenant: str, namespace: str | None = None) -> list[Advice]:
        """Every table of a tenant, or of one of its namespaces, the most worthwhile first."""
        evidence = self.evidence()
        found = (self._of(name, evidence) for name in self._names(tenant, namespace))
        return sorted((advice for advice in found if advice), key=lambda advice: advice.rank)

    def predict(self, table: Table, merge: MergeSize | None = None) -> dict[str, Any]:
        """What a compaction that begins now is expected to do, as its note keeps it; as planned, where it is."""
        return predicted(self.of(table, self.evidence(), at_once=True, merge=merge))

    def complete(self) -> int:
        """Note how predictions compare with what queries took since; how many were noted."""
        if self._queries.empty:
            return 0
        next_begun: dict[str, int] = {}
        completed = 0
        for job, _ in self._merges():  # newest first
            until = min(next_begun.get(job.table_uuid, 1 << 62), (job.ended_ms or 0) + _SOON_MS)
            next_begun[job.table_uuid] = job.started_ms or 0
            expected = _object(job, "predicted")
            if not expected or "actual_query_ms" in expected:
                continue
            after = [s for s in self._queries.samples(job.table_uuid, job.ended_ms or 0) if s.at_ms < until]
            alone = sum(sample.total_ms is not None for sample in after)
            if alone < ENOUGH_SAMPLES and len(after) < 4 * ENOUGH_SAMPLES:
                continue
            self._records.note(job.id, predicted={**expected, **_actual(expected, queries_now(after, 0))})
            completed += 1
        return completed

    def _merges(self) -> Iterator[tuple[JobRecord, dict[str, Any]]]:
        """The latest compactions that merged something, with what was counted, newest first."""
        for job in self._records.log("COMPACT", _PAST):
            stats = _object(job, "stats")
            if job.state == "done" and _number(stats, "files_compacted") > 0:
                yield job, stats

    def _names(self, tenant: str, namespace: str | None) -> Iterator[TableName]:
        namespaces = [n for _, n in self._catalog.list_namespaces(tenant)] if namespace is None else [namespace]
        for each in namespaces:
            for table in self._catalog.list_tables(tenant, each):
                yield TableName(tenant, each, table)

    def _of(self, name: TableName, evidence: CompactionHistory) -> Advice | None:
        try:
            return self.of(self._catalog.load(name), evidence)
        except TableNotFound:  # dropped meanwhile
            return None
        except CatalogUnavailable:
            raise
        except FirnError as e:  # what is wrong with one table keeps nobody from hearing of the others
            log.warning("the small files of %s could not be looked at: %s", name, e.message)
            return None


def predicted(advice: Advice) -> dict[str, Any]:
    """An advice as a prediction."""
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
    """The advice in one sentence, with the numbers it rests on."""
    if not advice.online:
        return "the table is offline, so that it is left alone; SET_ONLINE takes it back"
    if not advice.small:
        return "there are no small files"
    merge, queries, expected, policy = advice.merge, advice.queries, advice.forecast, advice.policy
    small = f"{advice.small} of {merge.files} file(s) are small"
    if advice.heavy:
        small += f" ({advice.heavy} by what is deleted in them)"
    if not advice.worth_merging:
        return f"{small}, but no partition has the {policy.min_files_to_compact} that make merging worth it"
    said = f"{small}; merging {advice.worth_merging} of them would leave {merge.files_after} file(s) in all"
    if merge.fewer:
        said += f" and take about {expected.cost_ms / 1000:.1f} s"
    if queries.files_opened is None:
        said += ", but no query of the table was measured since it was last compacted or the service was started"
    elif merge.fewer:
        said += (
            f": {queries.per_hour:.1f} queries an hour open {queries.files_opened:.1f} file(s) and plan for "
            f"{queries.planning_ms:.0f} ms each, and would save {expected.saving_ms:.1f} ms each, "
            f"{expected.saving_ms_per_hour / 1000:.1f} s an hour"
        )
    if advice.mode == "off":
        said += "; compaction is off for this table"
    return said


def _actual(expected: Mapping[str, Any], after: QueryCosts) -> dict[str, Any]:
    before = expected.get("query_ms_before")
    known = isinstance(before, int | float) and after.query_ms is not None
    return {
        "actual_query_ms": _rounded(after.query_ms),
        "actual_planning_ms": _rounded(after.planning_ms),
        "actual_files_opened": _rounded(after.files_opened),
        "actual_saving_ms": _rounded(before - after.query_ms) if known else None,  # type: ignore[operator]  # known
        "actual_samples": after.samples,
    }


def _done(stats: Mapping[str, Any], expected: Mapping[str, Any]) -> PastCompaction:
    files = _number(stats, "files_compacted")
    size = _number(stats, "bytes_compacted") or _number(expected, "bytes_merged")
    if not size:  # as much as so many files of this table have on average
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
