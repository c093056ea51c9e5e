"""Exported files of ingestion tables: one for each day, and one for each merged period. They can be written again."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import cast

from service.catalog.files.export import ExportedFile, ExportFolder, ExportFormat, all_rows
from service.catalog.tables import Catalog, Table
from service.commits.holds import SnapshotHolds
from service.commits.locks import TableLocks
from service.engine.session.engine import Engine
from service.errors import FirnError, InvalidRequest
from service.guard.policies import Policies
from service.ingest.exports.folders import BASE_PATH, check_folder
from service.ingest.exports.state import ExportState, export_state
from service.ingest.exports.visible import VisibleRows, folder_of
from service.ingest.history import IngestHistory
from service.ingest.periods.files import files_by_period
from service.ingest.sources.roots import Roots
from service.ledger.exports import ExportRecord, ExportRecords
from service.model.call import Call
from service.model.failures import internal_error
from service.model.ingest.patterns import fill
from service.model.ingest.periods import days_of, period_of
from service.model.ingest.reserved import DATE_FIELD, PERIOD_FIELD, table_file_of
from service.model.ingest.table_file import TableFile
from service.model.names import TableName
from service.model.times import now_ms

log = logging.getLogger("firn.ingest")


@dataclass(frozen=True)
class ExportSelection:
    """Which files to export: of some days, of a period, or all that should be there."""

    days: tuple[date, date] | None = None
    """The first and the last."""
    period: str | None = None


@dataclass
class ExportProgress:
    """The progress of an EXPORT. The worker writes it, anybody may read it."""

    phase: str = "looking"
    files_total: int = 0
    files_done: int = 0


@dataclass(frozen=True)
class ExportOutcome:
    """What an export wrote, and how many other files were up to date."""

    written: tuple[ExportedFile, ...] = ()
    current: int = 0


@dataclass(frozen=True)
class PeriodExport:
    """The file of a merged period, and how many daily files it replaced."""

    written: ExportedFile | None = None
    days_deleted: int = 0


@dataclass(frozen=True)
class ExportTarget:
    """A file that should exist: with the rows of a day, or of a period."""

    path: str
    value: date | str
    days: tuple[date, ...]


def daily_target(config: TableFile, day: date) -> ExportTarget:
    return ExportTarget(fill(config.daily_pattern, day, config.partitioning.date_format), day, (day,))


def period_target(config: TableFile, period: str) -> ExportTarget:
    days = days_of(period)
    return ExportTarget(fill(config.period_pattern, days[0]), period, days)


@dataclass(frozen=True)
class Exports:
    """Writes exported files from the newest state of a table, one after the other, and knows which are up to date."""

    engine: Engine
    catalog: Catalog
    policies: Policies
    holds: SnapshotHolds
    history: IngestHistory
    records: ExportRecords
    roots: Roots
    _locks: TableLocks = field(default_factory=TableLocks)

    def check(self, config: TableFile, table: Table | TableName, field: str = BASE_PATH) -> None:
        """Refuse the table file of a table if its base_path is not in an allowed folder, or has another table's files.

        Tables that are dropped do not count. A name is that of a new table.
        """
        if config.storage is None:
            return
        name, uuid = (table, "") if isinstance(table, TableName) else (table.name, table.uuid)
        others = [one for one in self.history.records.tables() if one.uuid != uuid and one.name != name]
        check_folder(config, name.tenant, others, self.roots, field)

    def after_ingest(self, table: Table, days: Sequence[date]) -> list[str]:
        """Bring the files of some days up to date, if the table exports. A failure is a warning: EXPORT repeats it."""
        config = table_file_of(table.properties)
        if config is None or not config.export or not days:
            return []
        try:
            with self._writing(table, config) as work:
                for target in work.targets_of_days(days):
                    work.bring_up_to_date(target)
        except Exception as e:
            return [_warning(table, e)]
        return []

    def after_compaction(self, table: Table, period: str, *, delete_days: bool) -> tuple[PeriodExport, list[str]]:
        """Bring the file of a merged period up to date, if the table exports; then delete its daily files if wanted."""
        config = table_file_of(table.properties)
        if config is None or not config.export:
            return PeriodExport(), []
        try:
            with self._writing(table, config) as work:
                work.expect(period_target(config, period))
                written = work.bring_up_to_date(period_target(config, period))
                return PeriodExport(written, work.delete_days(period) if delete_days else 0), []
        except Exception as e:
            return PeriodExport(), [_warning(table, e)]

    def run(self, table: Table, selection: ExportSelection, call: Call, *, dry_run: bool = False) -> ExportOutcome:
        """Write the files that are missing or out of date; in a dry run, only list them.

        A sender from whom a policy hides a part of the table gets files of its own, with what it may see.
        """
        config = table_file_of(table.properties)
        if config is None or config.storage is None:
            raise InvalidRequest(
                f"table {table.name.table!r} has no folder for exported files: its table file needs "
                "storage.base_path; add it, and send APPLY_TABLE",
                field="table",
            )
        progress = call.progress(ExportProgress)
        written: list[ExportedFile] = []
        with self._writing(table, config, call) as work:
            targets = work.selected(selection)
            stale = [one for one in targets if not work.is_current(one)]
            progress.phase, progress.files_total = "writing", len(stale)
            for target in stale:
                call.check()
                written.append(work.planned(target) if dry_run else work.write(target))
                progress.files_done += 1
        progress.phase = "done"
        return ExportOutcome(tuple(written), len(targets) - len(stale))

    @contextmanager
    def _writing(self, table: Table, config: TableFile, call: Call | None = None) -> Iterator["_Export"]:
        """Write files in the block: for the sender of a call, or else those of the table.

        One request at a time does for a table, or an older state could replace a newer.
        """
        assert config.storage is not None
        base = self.roots.of(table.name.tenant).resolve(config.storage.base_path, BASE_PATH)
        self.check(config, table, "table")
        with self._locks.hold(table.uuid):
            newest = self.catalog.load(table.name)
            if newest.uuid != table.uuid:  # dropped in the meantime
                newest = table
            visible = None
            if call is not None:
                newest = self.policies.shown(call.principal, newest)
                if newest.view is not None:
                    base, visible = f"{base.rstrip('/')}/{folder_of(call.principal)}", VisibleRows(self.engine, call)
            with self.holds.reading(newest.uuid, newest.current_snapshot_id):
                self.history.complete(newest)
                state = export_state(newest, self.history.current(newest))
                folder = ExportFolder(base, newest.iceberg.io.properties)
                yield _Export(self.records, newest, config, state, base.rstrip("/"), folder, visible)


@dataclass
class _Export:
    """The exported files of a table while they are written."""

    records: ExportRecords
    table: Table
    config: TableFile
    state: ExportState
    base: str
    folder: ExportFolder
    visible: VisibleRows | None = None
    """Reads the rows, if the files are for a sender who sees only a part of them."""
    known: dict[str, ExportRecord] = field(init=False)
    existing: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.remove_leftovers()
        self.known = self.records.of_table(self.table.uuid)
        self.existing = set(self.folder.paths())

    def targets_of_days(self, days: Sequence[date]) -> list[ExportTarget]:
        """The file of each day, or of its period if that replaced the daily files."""
        found: dict[str, ExportTarget] = {}
        for day in sorted(set(days)):
            period = period_of(day, self.config.granularity)
            replaced = self.is_replaced(period)
            target = period_target(self.config, period) if replaced else daily_target(self.config, day)
            found[target.path] = target
        return list(found.values())

    def selected(self, selection: ExportSelection) -> list[ExportTarget]:
        ingested = self.state.days
        if selection.period is not None:
            target = period_target(self.config, selection.period)
            if not set(target.days) & set(ingested):
                raise InvalidRequest.at("period", f"nothing was ingested for {selection.period}; send another one")
            return [target]
        if selection.days is not None:
            first, last = selection.days
            if first == last and first not in ingested:
                raise InvalidRequest.at("date", f"nothing was ingested for {first}; send another one")
            return self.targets_of_days([day for day in ingested if first <= day <= last])
        targets = {one.path: one for one in self.targets_of_days(ingested)}
        for period in files_by_period(self.table):
            target = period_target(self.config, period)
            if target.path in self.existing or self._place(target) in self.known:
                targets[target.path] = target
        return list(targets.values())

    def is_replaced(self, period: str) -> bool:
        """Whether the file of a period exists, and those of its days were deleted."""
        if period_target(self.config, period).path not in self.existing:
            return False
        return not any(daily_target(self.config, day).path in self.existing for day in days_of(period))

    def is_current(self, target: ExportTarget) -> bool:
        return target.path in self.existing and self.state.is_current(self.known.get(self._place(target)), target.days)

    def bring_up_to_date(self, target: ExportTarget) -> ExportedFile | None:
        """The file, if it had to be written."""
        return None if self.is_current(target) else self.write(target)

    def expect(self, target: ExportTarget) -> None:
        """Record that a file should exist, so that EXPORT writes it if it cannot be written now."""
        if self._place(target) not in self.known:
            self.records.put(self.table.uuid, ExportRecord(self._place(target), "", 0, 0, 0, now_ms()))

    def planned(self, target: ExportTarget) -> ExportedFile:
        return ExportedFile(self._place(target), 0, 0)

    def write(self, target: ExportTarget) -> ExportedFile:
        snapshot = self.table.current_snapshot_id
        if snapshot is None:
            raise InvalidRequest(f"table {self.table.name.table!r} has no rows yet; ingest a file first", field="table")
        form = cast(ExportFormat, self.config.format)
        read = all_rows if self.visible is None else self.visible.read
        written = self.folder.write(read(self.table, snapshot, self._values(target)), target.path, form)
        digest, number = self.state.digest(target.days), self.state.sequence_number
        record = ExportRecord(self._place(target), digest, number, written.records, written.bytes, now_ms())
        self.records.put(self.table.uuid, record)
        self.existing.add(target.path)
        return written

    def _values(self, target: ExportTarget) -> dict[str, str | date]:
        """The values of the rows of a file. With its period, only the manifests of that are read for a day."""
        if isinstance(target.value, str):
            return {PERIOD_FIELD.name: target.value}
        period = period_of(target.value, self.config.granularity)
        return {PERIOD_FIELD.name: period, DATE_FIELD.name: target.value}

    def delete_days(self, period: str) -> int:
        """Delete the daily files of a period; returns how many there were."""
        targets = [daily_target(self.config, day) for day in days_of(period)]
        targets = [one for one in targets if one.path in self.existing]
        deleted = self.folder.delete([one.path for one in targets])
        self.records.remove(self.table.uuid, map(self._place, targets))
        self.existing -= {one.path for one in targets}
        return deleted

    def _place(self, target: ExportTarget) -> str:
        return f"{self.base}/{target.path}"


def _warning(table: Table, failure: Exception) -> str:
    error = failure if isinstance(failure, FirnError) else internal_error(log, f"an export of {table.name}", failure)
    log.warning("files of %s were not exported: %s", table.name, error.message)
    return f"the rows are in the table, but were not exported: {error.code}: {error.message}; send EXPORT to repeat it"
