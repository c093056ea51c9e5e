"""The state of an ingestion table: what was ingested, what is missing, what is merged; from metadata and the ledger."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from service.catalog.tables import Table
from service.ingest.due import gaps, missing_days
from service.ingest.history import IngestHistory
from service.ingest.periods.files import PeriodFiles, files_by_period
from service.ingest.periods.merges import ingestion_config, local_date, now
from service.ledger.ingestions import IngestionRecord
from service.ledger.jobs import JobRecords
from service.model.ingest.periods import days_of, period_of
from service.model.properties import target_file_size_mb
from service.settings import IcebergSettings

_ERRORS, _COMPACTIONS = 10, 10_000
_MIB = 1 << 20


@dataclass(frozen=True)
class PeriodStatus:
    """The state of one period."""

    period: str
    days: int
    missing: tuple[date, ...]
    files: PeriodFiles
    is_merged: bool


@dataclass(frozen=True)
class IngestionStatus:
    """The state of a table."""

    ingestions: int
    days: Sequence[date]
    missing: tuple[date, ...]
    periods: tuple[PeriodStatus, ...]
    compactions: int
    errors: tuple[IngestionRecord, ...]
    ledger: str

    @property
    def merged(self) -> list[str]:
        """The periods that are merged, in order."""
        return [one.period for one in self.periods if one.is_merged]


@dataclass(frozen=True)
class IngestionStatuses:
    """Computes the state of ingestion tables."""

    settings: IcebergSettings
    jobs: JobRecords
    history: IngestHistory
    now: Callable[[], datetime] = now

    def of(self, table: Table) -> IngestionStatus:
        """The state of a table; InvalidRequest if it was not made from a table file."""
        config = ingestion_config(table, "table")
        self.history.complete(table)
        records = self.history.records.of_table(table.uuid)
        current = {date.fromisoformat(day): done for day, done in self.history.current(table).items()}
        days = sorted(current)
        with_rows = {day for day, done in current.items() if any(one.records_ingested for one in done)}
        today = local_date(self.now(), config)
        by_period: dict[str, list[date]] = {}
        for day in days:
            by_period.setdefault(period_of(day, config.granularity), []).append(day)
        compacted = self._compacted(table)
        return IngestionStatus(
            sum(one.state == "done" for one in records),
            days,
            gaps(days),
            self._periods(table, by_period, with_rows, {period for one in compacted for period in one}, today),
            len(compacted),
            tuple(one for one in reversed(records) if one.state == "refused")[:_ERRORS],
            self.history.records.place,
        )

    def _periods(
        self,
        table: Table,
        days: Mapping[str, Sequence[date]],
        with_rows: Collection[date],
        compacted: set[str],
        today: date,
    ) -> tuple[PeriodStatus, ...]:
        files, target = files_by_period(table), target_file_size_mb(table.properties, self.settings) * _MIB
        found = []
        for period in sorted({*days, *files}):
            had, has = days.get(period, ()), files.get(period, PeriodFiles())
            # A period of one file is merged if its days were, or if a compaction has found nothing to merge.
            most = len(days_of(period)) + 1 if period in compacted else sum(day in with_rows for day in had)
            missing = tuple(day for day in missing_days(period, had) if day < today)
            found.append(PeriodStatus(period, len(had), missing, has, has.is_merged(most, target)))
        return tuple(found)

    def _compacted(self, table: Table) -> list[list[str]]:
        """The periods of each compaction of periods that ended well and is still in the log."""
        name = table.name
        log = self.jobs.log("COMPACT", _COMPACTIONS, tenant=name.tenant, namespace=name.namespace, table=name.table)
        merged = (
            (one.details.get("request") or {}).get("periods")
            for one in log
            if one.table_uuid == table.uuid and one.state == "done"
        )
        return [list(periods) for periods in merged if periods]
