"""A result that only the engine keeps up to date: no definition, no ledger, no locks."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from service.catalog.tables import Catalog, Table
from service.commits.compared import changes_between
from service.commits.edit_base import base_of
from service.commits.local_rows import LocalResult, with_few_rows
from service.engine.iceberg.swap import Gate, no_gate
from service.engine.jobs.dynamic.analysed import analyse
from service.engine.jobs.dynamic.job import RefreshCounts, RefreshJob, RefreshSource, StagedRefresh
from service.engine.jobs.dynamic.refresh import commit_refresh, stage_all, stage_change
from service.model.dynamic.plan import IncrementalPlan
from service.model.dynamic.state import REFRESH_STATE_PROPERTY
from service.model.names import TableName
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema
from service.settings.kinds import RowLevel
from tests.harness import Firn
from tests.support.tables import ServedTable


class RefreshedTable:
    """The result of a query over the views `s{i}_new` of some tables."""

    def __init__(
        self,
        firn: Firn,
        sources: Sequence[ServedTable],
        query: str,
        plan: Callable[[Mapping[int, int]], IncrementalPlan] | IncrementalPlan,
        name: str = "result",
        partition: tuple[PartitionField, ...] = (),
        row_level: RowLevel = "auto",
        local: bool = True,
    ) -> None:
        self.firn, self.sources, self.query, self.row_level = firn, sources, query, row_level
        self.local = local
        """Whether few rows are read in this process."""
        self.plan_of = plan if callable(plan) else lambda changed: plan
        self.catalog = firn.app.parts[Catalog]
        fields = {i: source.loaded.schema.fields for i, source in enumerate(sources)}
        columns = firn.app.engine.run(analyse, fields, query)
        self.name = TableName(sources[0].tenant, "default", name)
        self.catalog.create(self.name, TableSchema(columns), partition, {"format-version": "2"})
        self.read: list[int | None] = [None] * len(sources)
        """The snapshots of the sources that the result stands for."""

    @property
    def loaded(self) -> Table:
        return self.catalog.load(self.name)

    def build(self, gate: Gate = no_gate) -> RefreshCounts:
        """A full refresh."""
        return self._done(stage_all, self.query, gate)

    def refresh(self, gate: Gate = no_gate) -> RefreshCounts:
        """An incremental refresh."""
        return self._done(stage_change, self.plan_of, gate)

    def _done(self, stage: Callable[..., StagedRefresh], how: Any, gate: Gate) -> RefreshCounts:
        def both(session: SparkSession, job: RefreshJob) -> tuple[int, RefreshCounts]:
            staged = stage(session, job, how)
            return commit_refresh(session, staged, uuid.uuid4().hex, gate), staged.counts

        tables = [source.loaded for source in self.sources]
        refresh = self.job(tables)
        snapshot_id, counts = self.firn.app.engine.run(both, refresh)
        assert self.loaded.current_snapshot_id == snapshot_id
        self.read = [table.current_snapshot_id for table in tables]
        found: RefreshCounts = counts
        return found

    def job(self, tables: Sequence[Table]) -> RefreshJob:
        loaded = self.loaded
        ids = [table.current_snapshot_id for table in tables]
        sources = tuple(map(self._source, range(len(tables)), tables))
        state = {REFRESH_STATE_PROPERTY: json.dumps(ids)}
        stored = LocalResult(loaded, loaded.stored_schema) if self.local else None
        return RefreshJob(base_of(loaded, self.row_level), loaded.stored_schema, sources, state, stored=stored)

    def _source(self, number: int, table: Table) -> RefreshSource:
        old_id, new_id, needed = self.read[number], table.current_snapshot_id, self.needed(table)
        ranges = changes_between(table, old_id, new_id)
        at = (new_id, old_id, ranges)
        found = RefreshSource(number, table.spark_name, table.schema_id, table.schema, needed, *at)
        return with_few_rows(found, table) if self.local else found

    def needed(self, table: Table) -> tuple[str, ...]:
        return table.schema.names

    @property
    def state(self) -> Any:
        """The state that the newest snapshot of the result carries."""
        head = self.loaded.iceberg.current_snapshot()
        return head and head.summary and head.summary.additional_properties.get(REFRESH_STATE_PROPERTY)

    def rows(self) -> list[str]:
        """The rows of the result as text, in order."""
        return self._rows(lambda session: f"SELECT * FROM {self.loaded.spark_name}")

    def recomputed(self) -> list[str]:
        """The rows that the query gives now."""

        def text(session: SparkSession) -> str:
            for i, source in enumerate(self.sources):
                names = ", ".join(f"`{name}`" for name in source.loaded.schema.names)
                session.sql(f"SELECT {names} FROM {source.loaded.spark_name}").createOrReplaceTempView(f"s{i}_new")
            return self.query

        return self._rows(text)

    def _rows(self, text: Callable[[SparkSession], str]) -> list[str]:
        def run(session: SparkSession) -> list[str]:
            found = sorted(str(row.asDict(recursive=True)) for row in session.sql(text(session)).collect())
            for i in range(len(self.sources)):
                session.catalog.dropTempView(f"s{i}_new")
            return found

        return self.firn.app.engine.run(run)
