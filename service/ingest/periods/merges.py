"""What COMPACT with a period needs besides the merge: which periods are merged, and what follows for their files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from service.catalog.tables import Table
from service.errors import InvalidRequest
from service.ingest.exports.exports import Exports
from service.ingest.history import IngestHistory
from service.ingest.periods.choice import PeriodChoice, choose_periods
from service.ingest.periods.files import FilesBefore, PeriodFiles, files_by_period, kept_paths
from service.model.ingest.reserved import table_file_of
from service.model.ingest.table_file import TableFile
from service.model.times import check_zone


@dataclass(frozen=True)
class MergedPeriod:
    """A period after its files were merged."""

    period: str
    records: int
    files_before: int
    files_after: int
    output: str | None = None
    """The exported file, if the table exports."""
    source_files_deleted: int = 0

    @property
    def has_changed(self) -> bool:
        return bool(self.files_before != self.files_after or self.output or self.source_files_deleted)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class PeriodMerges:
    """Chooses the periods that are merged, and finishes them: exported files, and the daily files that they replace."""

    history: IngestHistory
    exports: Exports
    now: Callable[[], datetime] = now

    def choose(self, table: Table, period: str, *, allow_incomplete: bool, force: bool) -> PeriodChoice:
        """The periods that a request names. InvalidRequest if the table has none, or if one cannot be merged."""
        config = ingestion_config(table, "period")
        self.history.complete(table)
        ingested = {date.fromisoformat(day) for day in self.history.current(table)}
        today = local_date(self.now(), config)
        return choose_periods(period, config, ingested, today, allow_incomplete=allow_incomplete, force=force)

    def deletes_source(self, table: Table, wanted: bool | None) -> bool:
        """Whether the daily files are deleted: as the request says, or else the table file."""
        config = ingestion_config(table, "delete_source")
        return config.compaction.strategy.delete_source if wanted is None else wanted

    def planned(self, before: FilesBefore, periods: Sequence[str], fewer: Mapping[str, int]) -> list[MergedPeriod]:
        """What a dry run shows, given how many files fewer each period would have."""
        return [
            MergedPeriod(period, has.records, has.count, has.count - fewer.get(period, 0))
            for period in periods
            for has in [before.current.get(period, PeriodFiles())]
        ]

    def finish(
        self, before: FilesBefore, after: Table, periods: tuple[str, ...], *, delete_source: bool
    ) -> tuple[list[MergedPeriod], list[str]]:
        """Export the files of merged periods, and count. `after` is the table after old snapshots were expired.

        Returns the periods, and warnings about files that could not be exported.
        """
        config = ingestion_config(after, "period")
        old, new = before.current, files_by_period(after)
        counts_data_files = delete_source and not config.export
        kept = kept_paths(after) if counts_data_files else set()
        merged, warnings = [], []
        for period in periods:
            had, has = old.get(period, PeriodFiles()), new.get(period, PeriodFiles())
            exported, failed = self.exports.after_compaction(after, period, delete_days=delete_source)
            deleted = before.deleted(period, has, kept) if counts_data_files else exported.days_deleted
            output = None if exported.written is None else exported.written.path
            merged.append(MergedPeriod(period, has.records, had.count, has.count, output, deleted))
            warnings += failed
        return merged, warnings


def local_date(moment: datetime, config: TableFile) -> date:
    """The date of a moment in the time zone in which the periods of a table become due."""
    return moment.astimezone(check_zone(config.compaction.trigger.timezone or "UTC", "timezone")).date()


def ingestion_config(table: Table, field: str) -> TableFile:
    """The table file of a table; InvalidRequest about a field of the request if it was not made from one."""
    config = table_file_of(table.properties)
    if config is None:
        raise InvalidRequest.at(
            field, f"table {table.name.table!r} was not made from a table file, so it has no periods; leave {field} out"
        )
    return config
