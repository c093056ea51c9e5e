"""The files of a refresh: written for the rows that come, and for those that stay of files that are written again."""

from collections.abc import Mapping

import pyarrow as pa

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.staging import StagedFiles, readable, stage_rows
from service.engine.iceberg.swap import CommitTarget
from service.engine.jobs.append import small_frame
from service.engine.jobs.arrow.stage import stage_here
from service.engine.jobs.dynamic import few, statements
from service.engine.jobs.dynamic.job import RefreshCounts, RefreshJob, StagedRefresh
from service.engine.jobs.dynamic.result import GONE, GoingRows, NetChange, ResultRows
from service.engine.jobs.edit import SHUFFLED_BYTES, count_rows
from service.engine.jobs.edits.publish import StagedEdit
from service.engine.session.rows import frame
from service.engine.session.spark_types import DataFrame

# So many rows are written by one task, into one file for each partition.
_FEW_ROWS = 50_000
# More copies of few rows are made by Spark.
_ROWS_HERE = 1_000_000


class RefreshFiles:
    """Writes the files of a change."""

    def __init__(self, result: ResultRows, net: NetChange, going: GoingRows) -> None:
        self.net, self.going = net, going
        self.job, self.views = result.job, result.views
        base = self.job.base
        self.target = CommitTarget(self.views.session, base.name, base.uuid, base.schema_id)
        self._iceberg = self.target.load()
        hits = self.going.hits
        self.whole = base.whole(hits)
        self.rewritten = base.rewritten({path: count for path, count in hits.items() if path not in self.whole})

    def stage(self, source_rows: Mapping[int, int]) -> StagedRefresh:
        base, hits = self.job.base, self.going.hits
        removed = {path: base.rows[path] for path in self.whole | self.rewritten}
        staged, stays = self._written()
        edit = StagedEdit(
            self.target,
            base.snapshot_id,
            staged,
            stays + self.net.came,
            self.going.places.in_files(hits.keys() - removed.keys()),
            removed,
            self.job.summary,
            no_deletes=not base.has_deletes,
        )
        counts = RefreshCounts(
            inserted=self.net.came,
            deleted=self.net.went,
            unchanged=max(0, live_rows(self.job) - self.net.went),
            source_rows=source_rows,
            keys=self.net.keys,
            files_written=len(staged.files),
            files_removed=len(removed),
            files_rewritten=len(self.rewritten),
        )
        return StagedRefresh(edit, counts)

    def _written(self) -> tuple[StagedFiles, int]:
        """Write the rows. Also returns how many of them are not new, by what was counted before."""
        base, net, session = self.job.base, self.net, self.views.session
        if not self.rewritten and not net.came:
            return StagedFiles(self._iceberg.io(), ()), 0
        new, kept = self._new_here(), self._kept_here()
        lost = sum(self.going.hits[path] for path in self.rewritten)
        if new is not None and kept is not None:
            left = few.without(kept, self.going.places.in_files(self.rewritten)).select(new.column_names)
            some, stays = [each for each in (left, new) if each.num_rows], kept.num_rows - lost
            staged = stage_here(session, self._iceberg, some)
            if staged is not None:
                return staged, stays
            parts = [small_frame(session, each) for each in some]
        else:
            parts, stays = self._by_spark(new, lost)
        rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        if base.bytes_of(self.rewritten) > SHUFFLED_BYTES or net.came > _FEW_ROWS:
            return stage_rows(self._iceberg, rows, {"distribution-mode": "hash"}), stays
        return stage_rows(self._iceberg, rows.coalesce(1)), stays

    def _by_spark(self, new: pa.Table | None, lost: int) -> tuple[list[DataFrame], int]:
        """The rows that stay of files to write again, and those that come; and how many stay."""
        parts, stays = list[DataFrame](), 0
        if self.rewritten:
            rows, live = self._kept()
            parts, stays = [rows], live - lost
        if self.net.came:
            parts.append(self._new() if new is None else small_frame(self.views.session, new))
        return parts, stays

    def _new_here(self) -> pa.Table | None:
        """The rows that come, if they are few."""
        net = self.net
        return few.new_rows(net.few, self.job.schema) if net.few is not None and net.came <= _ROWS_HERE else None

    def _new(self) -> DataFrame:
        return self.views.session.sql(statements.new_rows(self.net.view, self.job.schema, repeated=self.net.most > 1))

    def _kept_here(self) -> pa.Table | None:
        """All rows of the files to write again, with their places, if they are few."""
        stored = self.job.stored
        return None if stored is None or self.net.few is None else stored.read(self.rewritten)

    def _kept(self) -> tuple[DataFrame, int]:
        """The rows that stay of the files to write again, and how many rows these have."""
        base, session, schema = self.job.base, self.views.session, self.job.schema
        assert base.snapshot_id is not None
        tasks = scan_tasks.tasks(self._iceberg, base.snapshot_id, self.rewritten)
        source = self.views.stack.enter_context(readable(self._iceberg, tasks))
        if not self.going.in_view:
            self.views.make(GONE, frame(session, self._places()))
        counted = [base.live(path) for path in self.rewritten]
        live = count_rows(session, source) if None in counted else sum(count or 0 for count in counted)
        return session.sql(statements.kept_rows(source, GONE, schema)), live

    def _places(self) -> pa.Table:
        rows = self.going.places.rows
        assert rows is not None
        return rows


def live_rows(job: RefreshJob) -> int:
    """How many rows the result has; with delete files for several data files, how many it had written."""
    base = job.base
    counted = (base.live(path) for path in base.rows)
    return sum(rows if live is None else live for live, rows in zip(counted, base.rows.values(), strict=True))
