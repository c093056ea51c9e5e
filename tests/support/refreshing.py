"""Dynamic tables over PyIceberg's tables in memory, refreshed without Spark: each refresh commits one row."""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, Record

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.dynamic.compiling import Compiled
from service.dynamic.definitions import Definitions
from service.dynamic.query.compiled import NotIncremental, QuerySource
from service.dynamic.refresh.computation import Committer
from service.dynamic.refresh.failures import Failures
from service.dynamic.refresh.passes import Passes, PassOptions
from service.dynamic.refresh.refresher import Refresher
from service.engine.jobs.dynamic.job import RefreshCounts, RefreshJob
from service.engine.jobs.dynamic.refresh import commit_refresh, stage_all, stage_change
from service.jobs.jobs import Jobs
from service.ledger.dynamic_cursors import CursorRecords
from service.ledger.dynamic_tables import DynamicTable, DynamicTableRecords
from service.ledger.jobs import JobRecords
from service.model.call import Call
from service.model.dynamic.definition import DEFINITION_PROPERTY, Definition, DynamicOptions, DynamicSource
from service.model.dynamic.plan import IncrementalPlan, WeightedRows
from service.model.dynamic.state import REFRESH_STATE_PROPERTY
from service.model.names import BATCH_PROPERTY, TableName
from service.settings import EditSettings
from tests.fakes import FakeOwners, QuickLedger
from tests.support.dynamic import COLUMNS, defined, named
from tests.unit.iceberg_tables import data_file, open_catalog

AUTO, INCREMENTAL = DynamicOptions(300), DynamicOptions(300, refresh_mode="INCREMENTAL")
STRICT = DynamicOptions(300, refresh_mode="INCREMENTAL_STRICT")


@dataclass
class Computed:
    """A refresh that the engine has done: of which table, how, and from which snapshots."""

    table: str
    mode: str
    snapshots: tuple[int | None, ...]


@dataclass
class _Staged:
    job: RefreshJob
    mode: str
    counts: RefreshCounts = field(default_factory=lambda: RefreshCounts(inserted=1))
    discarded: bool = False

    def discard(self) -> None:
        self.discarded = True


@dataclass
class RefreshEngine:
    """Stages and commits refreshes of PyIceberg's tables. `before` is called with each step and the table's name in
    Spark, before it is done; what it raises is what the step raises."""

    load: Callable[[str], Table]
    done: list[Computed] = field(default_factory=list)
    before: Callable[[str, str], object] = lambda step, table: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run_for(self, call: Any, job: Callable[..., Any], work: Any, *how: Any) -> Any:
        call.check()
        if job is commit_refresh:
            return self._commit(work, *how)
        assert job in (stage_all, stage_change)
        mode = "FULL" if job is stage_all else "INCREMENTAL"
        self.before("stage", work.base.name)
        if job is stage_change:
            how[0]({one.number: 1 for one in work.sources if one.changes})
        return _Staged(work, mode)

    def _commit(self, staged: _Staged, batch: str, gate: Callable[[], None]) -> None:
        job = staged.job
        self.before("commit", job.base.name)
        gate()
        with self._lock:
            rows = 100 if staged.mode == "FULL" else 1
            add_rows(self.load(job.base.name), rows, **{BATCH_PROPERTY: batch, **job.summary})
            self.done.append(Computed(job.base.name, staged.mode, tuple(one.new_id for one in job.sources)))
        self.before("committed", job.base.name)


@dataclass
class FakeQuery:
    """A query that reads all columns of its sources."""

    sources: tuple[QuerySource, ...]
    not_incremental: NotIncremental | None = None
    full: str = "SELECT 1"
    hidden: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def plan(self, changed: Any) -> IncrementalPlan:
        return IncrementalPlan((), WeightedRows("change"))


@dataclass
class FakeCompiler:
    """Compiles every query; one with LIMIT is not incremental. `refuse` raises what a test wants to be refused."""

    refuse: Callable[[TableName], object] = lambda name: None
    reads: tuple[str, ...] | None = None
    compiled: list[TableName] = field(default_factory=list)

    def compile_definition(self, definition: Definition, sources: Sequence[Table], call: Any = None) -> Compiled:
        self.compiled.append(definition.name)
        self.refuse(definition.name)
        reads = tuple(QuerySource(None, one.name.table, self.reads or tuple(one.schema.names), 1, 1) for one in sources)
        why = NotIncremental("LIMIT", "LIMIT keeps some rows of many") if "LIMIT" in definition.query else None
        return Compiled(FakeQuery(reads, why), tuple(sources), COLUMNS, tuple(one.schema for one in sources))


class Refreshing:
    """One process over a catalog and a ledger; `restarted` is the next one, or another instance beside it."""

    def __init__(
        self,
        home: Path,
        *,
        catalog: Catalog | None = None,
        owners: FakeOwners | None = None,
        options: DynamicOptions = AUTO,
    ) -> None:
        self.home, self.options = home, options
        self.catalog = open_catalog(home) if catalog is None else catalog
        self.ledger = QuickLedger(f"sqlite:///{home}/ledger.db")
        if owners is not None:
            self.ledger.owners = cast(Any, owners)
        self.records, self.cursors = DynamicTableRecords(self.ledger), CursorRecords(self.ledger)
        self.commits = Commits(self.catalog, self.ledger, pauses_s=(0, 0))
        self.engine, self.compiler = RefreshEngine(self._by_spark_name), FakeCompiler()
        self.holds = SnapshotHolds()
        self.definitions = Definitions(self.catalog, self.records)
        self.jobs = Jobs(JobRecords(self.ledger), self.commits)
        parts = Committer(
            cast(Any, self.engine), self.commits, self.jobs, self.holds, EditSettings(), reads_files=False
        )
        self.refresher = Refresher(parts, self.definitions, self.cursors, cast(Any, self.compiler))
        self.passes = Passes(
            self.definitions, self.commits, self.holds, self.refresher, Failures(self.records), parallelism=4
        )

    def restarted(self, owners: FakeOwners | None = None) -> "Refreshing":
        return Refreshing(self.home, catalog=self.catalog, owners=owners, options=self.options)

    def base(self, name: str, rows: int = 100) -> Table:
        table = self.catalog.create(named(name), COLUMNS, (), {"format-version": "2"})
        if rows:
            add_rows(table, rows)
        return self.load(name)

    def dynamic(self, name: str, *sources: str, **parts: Any) -> DynamicTable:
        tables = [self.load(one) for one in sources]
        read = tuple(DynamicSource(one.name, one.uuid, one.name.table, ("id", "note")) for one in tables)
        declared = replace(defined(name, *sources, **{"options": self.options, **parts}), sources=read)
        properties: Mapping[str, str] = {DEFINITION_PROPERTY: declared.text, "format-version": "2"}
        return self.definitions.of(self.catalog.create(named(name), COLUMNS, (), dict(properties)))

    def load(self, name: str) -> Table:
        return self.catalog.load(named(name))

    def add(self, name: str, rows: int = 1, **summary: str) -> int:
        return add_rows(self.load(name), rows, **summary)

    def compact(self, name: str) -> int:
        """A commit that writes all files again; its state is carried over as COMPACT does it."""
        return rewrite(self.load(name))

    def refresh(self, *names: str, **how: Any) -> dict[str, str]:
        """A pass; what it did with each table: the mode and the reason, or the state and the reason."""
        call = how.pop("call", None) or Call("request-1")
        self.outcome = self.passes.refresh([self.load(name).uuid for name in names], call, PassOptions(**how))
        return {
            one.table.name.table: f"{(one.record and one.record.mode) or one.state} {one.reason}"
            for one in self.outcome.tables
        }

    def known(self, name: str) -> DynamicTable:
        return next(one for one in self.records.all() if one.name == named(name))

    def _by_spark_name(self, name: str) -> Table:
        for tenant, namespace in self.catalog.list_namespaces():
            for table in self.catalog.list_tables(tenant, namespace):
                found = self.catalog.load(TableName(tenant, namespace, table))
                if found.spark_name == name:
                    return found
        raise LookupError(name)


def add_rows(table: Table, rows: int, **summary: str) -> int:
    """A commit of one file that is not really there."""
    iceberg = table.iceberg.refresh()
    with iceberg.transaction() as transaction, transaction.update_snapshot(summary).fast_append() as files:
        files.append_data_file(data_file(_new_path(table), Record(), rows))
    made = iceberg.current_snapshot()
    assert made is not None
    return made.snapshot_id


class _Rewrite(_OverwriteFiles):
    """A commit of the operation `replace`, which PyIceberg does not make itself."""

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        found = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **found.additional_properties)


def rewrite(table: Table) -> int:
    """A commit that writes all files of a table again, with the state of a dynamic table."""
    iceberg = table.iceberg.refresh()
    head = iceberg.current_snapshot()
    assert head is not None
    assert head.summary is not None
    state = head.summary.additional_properties.get(REFRESH_STATE_PROPERTY)
    carried = {} if state is None else {REFRESH_STATE_PROPERTY: state}
    old = [task.file for task in iceberg.scan().plan_files()]
    with iceberg.transaction() as transaction:
        update = _Rewrite(Operation.OVERWRITE, transaction, iceberg.io, snapshot_properties=carried)
        with update as files:
            for file in old:
                files.delete_data_file(file)
            files.append_data_file(data_file(_new_path(table), Record(), sum(file.record_count for file in old)))
    made = iceberg.current_snapshot()
    assert made is not None
    return made.snapshot_id


def _new_path(table: Table) -> str:
    return f"{table.location}/data/{uuid.uuid4().hex}.parquet"


def expire(table: Table, *snapshots: int | None) -> None:
    """Expire snapshots of a table."""
    table.iceberg.refresh().maintenance.expire_snapshots().by_ids([one for one in snapshots if one]).commit()
