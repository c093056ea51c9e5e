"""The files of a refresh: written for the rows that come, and for those that stay of files that are written again."""

from collections.abc import Mapping

import pyarrow as pa

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.staging import StagedFiles, readable, stage_rows
from service.engine.iceberg.swap import CommitTarget
from service.engine.jobs.append import small_frame
from service.engine.jobs.dynamic import few, statements
from service.engine.jobs.dynamic.job import RefreshCounts, RefreshJob, StagedRefresh
from service.engine.jobs.dynamic.result import GONE, GoingRows, NetChange, ResultRows
from service.engine.jobs.edit import SHUFFLED_BYTES, count_rows
from service.engine.jobs.edits.places import FoundPlaces
from service.engine.jobs.edits.publish import StagedEdit
from service.engine.session.rows import frame
from service.engine.session.spark_types import DataFrame

# So many rows are written by one task, into one file for each partition.
_FEW_ROWS = 50_000
_NOTHING = GoingRows({}, FoundPlaces())


class RefreshFiles:
    """Writes the files of a change."""

    def __init__(self, result: ResultRows, net: NetChange) -> None:
        self.result, self.net = result, net
        self.job, self.views = result.job, result.views
        base = self.job.base
        self.target = CommitTarget(self.views.session, base.name, base.uuid, base.schema_id)
        self._iceberg = self.target.load()
        self.going = result.going(net) if net.went else _NOTHING
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
        base, net, parts, stays = self.job.base, self.net, list[DataFrame](), 0
        if self.rewritten:
            kept, stays = self._kept()
            parts.append(kept)
        if net.came:
            parts.append(self._new())
        if not parts:
            return StagedFiles(self._iceberg.io(), ()), 0
        rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        if base.bytes_of(self.rewritten) > SHUFFLED_BYTES or net.came > _FEW_ROWS:
            return stage_rows(self._iceberg, rows, {"distribution-mode": "hash"}), stays
        return stage_rows(self._iceberg, rows.coalesce(1)), stays

    def _new(self) -> DataFrame:
        net, schema, session = self.net, self.job.schema, self.views.session
        if net.few is not None and net.came <= _FEW_ROWS:
            return small_frame(session, few.new_rows(net.few, schema))
        return session.sql(statements.new_rows(net.view, schema, repeated=net.most > 1))

    def _kept(self) -> tuple[DataFrame, int]:
        """The rows that stay of the files to write again, and how many there are."""
        base, session, schema, stored = self.job.base, self.views.session, self.job.schema, self.job.stored
        lost = sum(self.going.hits[path] for path in self.rewritten)
        rows = stored.read(self.rewritten) if stored is not None and self.net.few is not None else None
        if rows is not None:
            left = few.without(rows, self.going.places.in_files(self.rewritten))
            return small_frame(session, left.select(list(schema.names))), rows.num_rows - lost
        assert base.snapshot_id is not None
        tasks = scan_tasks.tasks(self._iceberg, base.snapshot_id, self.rewritten)
        source = self.views.stack.enter_context(readable(self._iceberg, tasks))
        if not self.going.in_view:
            self.views.make(GONE, frame(session, self._places()))
        counted = [base.live(path) for path in self.rewritten]
        live = count_rows(session, source) if None in counted else sum(count or 0 for count in counted)
        return session.sql(statements.kept_rows(source, GONE, schema)), live - lost

    def _places(self) -> pa.Table:
        rows = self.going.places.rows
        assert rows is not None
        return rows


def live_rows(job: RefreshJob) -> int:
    """How many rows the result has; with delete files for several data files, how many it had written."""
    base = job.base
    counted = (base.live(path) for path in base.rows)
    return sum(rows if live is None else live for live, rows in zip(counted, base.rows.values(), strict=True))
