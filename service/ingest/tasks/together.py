"""Write several small text files by one Spark job: a job for each would take far longer than their rows do."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs.ingest.files import Rejects
from service.engine.jobs.ingest.many import FilePart, count_all_rejects, stage_all_good_rows, stage_all_rejects
from service.errors import InternalError, InvalidRequest
from service.ingest.prepare import PreparedFile
from service.ingest.publish import StagedIngest
from service.ingest.quarantine import quarantined_values, target_of
from service.ingest.sources.fetch import check_unchanged
from service.ingest.sources.readable import count_records, split
from service.model.ingest.reading import Cleaning

if TYPE_CHECKING:
    from service.ingest.run import IngestRun

T = TypeVar("T")
# Files are split into records in this process, which is slower than Spark for large ones.
_SMALL, _MOST_BYTES, _MOST_FILES = 4 << 20, 32 << 20, 62


def grouped(
    prepared: Mapping[int, PreparedFile],
) -> tuple[list[dict[int, PreparedFile]], dict[int, PreparedFile]]:
    """The files that are written together, in groups, and those that are written one by one.

    Files of a group have the same fields and rules, and different dates.
    """
    groups: list[dict[int, PreparedFile]] = []
    for i, one in prepared.items():
        if one.readable.is_typed or one.readable.size > _SMALL:
            continue
        fitting = next((group for group in groups if _fits(one, group)), None)
        if fitting is None:
            groups.append({i: one})
        else:
            fitting[i] = one
    groups = [group for group in groups if len(group) > 1]
    together = {i for group in groups for i in group}
    return groups, {i: one for i, one in prepared.items() if i not in together}


def _fits(one: PreparedFile, group: Mapping[int, PreparedFile]) -> bool:
    first = next(iter(group.values()))
    size = sum(other.readable.size for other in group.values()) + one.readable.size
    return (
        len(group) < _MOST_FILES
        and size <= _MOST_BYTES
        and (one.readable.format, one.readable.fields) == (first.readable.format, first.readable.fields)
        and one.dataset == first.dataset
        and all(one.file.day != other.file.day for other in group.values())
    )


def guarded(cleaning: Cleaning, stage: Callable[[Cleaning], T]) -> tuple[T, Cleaning]:
    """Stage rows, and return what was staged and by which rules: a row for which an expression fails is a reject."""
    try:
        return stage(cleaning), cleaning
    except InvalidRequest:  # an expression failed for a row; guarded ones cost time
        if not any(column.expression for column in cleaning.columns):
            raise
    cleaning = replace(cleaning, guards_expressions=True)
    return stage(cleaning), cleaning


@dataclass
class Together:
    """Writes the files of a group."""

    run: "IngestRun"
    group: dict[int, PreparedFile]
    staged: dict[int, StagedIngest]

    def write(self) -> None:
        """Stage every file of the group, or record why it is refused."""
        run, now = self.run, datetime.now(UTC)
        for i, one in self.group.items():
            self.staged[i] = StagedIngest(run.empty(one.file), one)
        splits = {
            i: replace(one, readable=split(one.fetched, one.readable, run.folder, one.dataset.csv))
            for i, one in self.group.items()
        }
        like = next(iter(splits.values()))
        parts = {i: FilePart(one.readable.path, run.cleaning(one).constants) for i, one in splits.items()}
        cleaning = self._stage(like, run.cleaning(like), parts)
        read = {i: count_records(one.readable, one.fetched) for i, one in splits.items()}
        wrong = [i for i in splits if self._good(i) < read[i]]
        rules = cleaning.rules(like.readable)
        counts = dict.fromkeys(splits, ())
        if wrong:
            listed = [parts[i] for i in wrong]
            found = self._job(count_all_rejects, like.readable, cleaning, listed, rules)
            counts |= dict(zip(wrong, found, strict=True))
        for i, one in splits.items():
            with run.refusing(i, one.file, one):
                check_unchanged(one.fetched)
                rejects = Rejects(counts[i])
                if rejects.count != read[i] - self._good(i):
                    raise InternalError(f"{one.fetched.source.name!r} has rows that are neither good nor rejected")
                outcome = run.outcome_of(one, uuid.uuid4().hex, read[i], self._good(i), rejects, cleaning)
                self.staged[i].outcome, self.staged[i].rejects = outcome, rejects
                run.check_rejects(one, outcome, cleaning)
                run.count(outcome)
        kept = [i for i in wrong if i not in run.outcomes]
        if kept:
            self._quarantine(like, cleaning, {i: splits[i] for i in kept}, now)

    def _stage(self, like: PreparedFile, cleaning: Cleaning, parts: dict[int, FilePart]) -> Cleaning:
        """Write the good rows; the rules by which that was done."""
        reading = (target_of(self.run.table), like.readable)

        def stage(cleaning: Cleaning) -> list[StagedFiles]:
            return list(self._job(stage_all_good_rows, *reading, cleaning, list(parts.values())))

        good, cleaning = guarded(cleaning, stage)
        for i, files in zip(parts, good, strict=True):
            self.staged[i].good = files
        return cleaning

    def _quarantine(
        self, like: PreparedFile, cleaning: Cleaning, files: dict[int, PreparedFile], now: datetime
    ) -> None:
        table = self.run.parts.quarantines.ensure(self.run.table)
        parts = [
            FilePart(one.readable.path, tuple(quarantined_values(one, self.staged[i].outcome.run_id, now)))
            for i, one in files.items()
        ]
        rules = cleaning.rules(like.readable)
        written = self._job(stage_all_rejects, like.readable, cleaning, parts, rules, target_of(table))
        first = self.staged[next(iter(files))]
        first.rejects = replace(first.rejects, staged=written)
        expected = sum(self.staged[i].rejects.count for i in files)
        if written.records != expected:
            raise InternalError(f"{expected} rows were rejected, but {written.records} quarantined")

    def _good(self, i: int) -> int:
        good = self.staged[i].good
        return 0 if good is None else good.records

    def _job(self, job: Any, *values: Any) -> Any:
        return self.run.parts.engine.run_for(self.run.call, job, *values)
