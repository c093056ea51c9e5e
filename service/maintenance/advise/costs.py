"""Estimates what small files cost queries, and what merging them costs. Pure. Without enough measurements it uses
defaults, which were measured on two cores with a local disk."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median

from service.catalog.files.data_files import DataFile
from service.catalog.files.small import MIB, SmallFiles
from service.maintenance.advise.query_log import QuerySample

# What each further file costs a query, and what the planning of a table with hardly any files takes.
OPENING_MS = 1.5
PLANNING_MS = 2.0
# No query takes less, however few files it opens.
LEAST_MS = 20.0
# What a compaction takes: a fixed time, and a time for each file and each MiB.
REWRITE_MS = (200.0, 1.0, 30.0)
# The number of pairs of queries that outweigh the default.
_ENOUGH_PAIRS = 20
# The number of compactions that the default counts for.
_PRIOR = 3
# A compaction that deviates more than this factor from the usual counts as if it deviated by this factor.
_ODD = 3.0
_ROUNDS = 200
# Two queries read about as much if the bytes differ by no more than this, or this share.
_ABOUT_BYTES, _ABOUT_SHARE = 4 * MIB, 0.1
_LATELY = 20


@dataclass(frozen=True, slots=True)
class MergeSize:
    """What a compaction would do to a table's data files."""

    files: int
    files_after: int
    merged: int = 0
    bytes_merged: int = 0
    deletes: int = 0
    """How many delete files it would remove."""

    @property
    def opens_less(self) -> bool:
        """Whether queries would open fewer files."""
        return self.fewer > 0 or self.deletes > 0

    @property
    def fewer(self) -> int:
        return self.files - self.files_after


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """What a table's queries cost now; None if none was sampled since the last compaction."""

    per_hour: float = 0.0
    planning_ms: float | None = None
    files_opened: float | None = None
    query_ms: float | None = None
    """Of queries that read only this table."""
    samples: int = 0


@dataclass(frozen=True, slots=True)
class RewriteCosts:
    """What compactions take."""

    fixed_ms: float
    file_ms: float
    mib_ms: float

    def cost_ms(self, merge: MergeSize) -> float:
        if not merge.merged:
            return 0.0
        return self.fixed_ms + merge.merged * self.file_ms + merge.bytes_merged / MIB * self.mib_ms


@dataclass(frozen=True, slots=True)
class PastCompaction:
    """What a past compaction merged, and how long it took."""

    files: int
    bytes: int
    took_ms: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a merge would save and cost. `worth` is the saving over the horizon divided by the cost."""

    saving_ms: float
    """For each query."""
    saving_ms_per_hour: float
    cost_ms: float
    worth: float


def merged(files: int, found: SmallFiles, target_bytes: int, most: int | None = None) -> MergeSize:
    """The effect of merging the files that are worth it, at most `most`, in a table with `files` files."""
    groups: dict[tuple[object, ...], list[DataFile]] = {}
    for file in found.worth_merging:
        groups.setdefault(file.group, []).append(file)
    left = len(found.worth_merging) if most is None else most
    fewer = count = size = deletes = 0
    for group in sorted(groups.values(), key=len, reverse=True):
        taken = sorted(group, key=lambda file: file.bytes)[:left]
        left -= len(taken)
        bytes_taken, gone = sum(file.bytes for file in taken), sum(len(file.deletes) for file in taken)
        outputs = max(1, -(-bytes_taken // target_bytes))
        if outputs < len(taken) or gone:
            fewer += max(0, len(taken) - outputs)
            count, size, deletes = count + len(taken), size + bytes_taken, deletes + gone
    return MergeSize(files, files - fewer, count, size, deletes)


def queries_now(samples: Sequence[QuerySample], per_hour: float) -> QueryCosts:
    """The costs that the latest samples show."""
    lately = samples[-_LATELY:]
    if not lately:
        return QueryCosts(per_hour)
    alone = [sample.total_ms for sample in lately if sample.total_ms is not None]
    return QueryCosts(
        per_hour,
        planning_ms=median(sample.planning_ms for sample in lately),
        files_opened=mean(sample.files for sample in lately),
        query_ms=median(alone) if alone else None,
        samples=len(lately),
    )


def forecast(
    queries: QueryCosts, merge: MergeSize, opening_ms: float, rewriting: RewriteCosts, horizon_hours: float
) -> Forecast:
    """What a merge is worth. A query opens proportionally fewer files, but at least one if it opened any. With a data
    file it also opens its delete files, which no longer exist after the merge."""
    kept = merge.files_after / merge.files if merge.files else 1.0
    deletes = merge.deletes / merge.files if merge.files else 0.0
    opened, planning = queries.files_opened or 0.0, queries.planning_ms or 0.0
    opened_after = max(opened * kept, min(opened, 1.0))
    planning_after = min(planning, PLANNING_MS) + max(0.0, planning - PLANNING_MS) * kept
    saving = max(0.0, planning - planning_after) + opening_ms * (opened - opened_after + opened * deletes)
    if queries.query_ms is not None:
        saving = min(saving, max(0.0, queries.query_ms - LEAST_MS))  # no more can be saved than there is
    cost = rewriting.cost_ms(merge)
    an_hour = saving * queries.per_hour
    return Forecast(saving, an_hour, cost, an_hour * horizon_hours / max(cost, 1.0) if cost else 0.0)


def opening_ms(samples: Iterable[Sequence[QuerySample]]) -> float:
    """What each further file costs a query: the median over pairs of queries of one table (the Theil–Sen estimator).
    Only pairs that read about the same bytes from different numbers of files count. `samples` has a list per table."""
    slopes = [slope for of_table in samples for slope in _slopes(of_table)]
    return max(0.0, median(slopes)) if len(slopes) >= _ENOUGH_PAIRS else OPENING_MS


def _slopes(samples: Sequence[QuerySample]) -> Iterable[float]:
    known = [(s.files, s.bytes, s.total_ms - s.planning_ms) for s in samples if s.total_ms is not None and s.files]
    for one, other in combinations(known, 2):
        if one[0] != other[0] and abs(one[1] - other[1]) <= max(_ABOUT_BYTES, _ABOUT_SHARE * max(one[1], other[1])):
            yield (one[2] - other[2]) / (one[0] - other[0])


def rewriting(done: Iterable[PastCompaction]) -> RewriteCosts:
    """What compactions take, learned from past ones: least squares, regularised by the defaults, none below 0.

    The speed of this machine is the median of the times they took, relative to the defaults; each cost is pulled
    towards it. A compaction that had to wait for long counts as little more than a slow one.
    """
    default = RewriteCosts(*REWRITE_MS)
    parts: list[tuple[float, float, float]] = []
    ratios: list[float] = []
    for each in done:
        if each.files > 0 and each.took_ms > 0:
            whole = default.cost_ms(MergeSize(each.files, 1, each.files, each.bytes))
            parts.append((1 / whole, each.files / whole, each.bytes / MIB / whole))
            ratios.append(each.took_ms / whole)
    speed = median([*ratios, *[1.0] * _PRIOR])
    targets = [min(max(ratio, speed / _ODD), speed * _ODD) for ratio in ratios]
    fixed, file, mib = (1 / ms for ms in REWRITE_MS)
    parts += [(fixed, 0, 0), (0, file, 0), (0, 0, mib)]
    targets += [speed] * 3
    return RewriteCosts(*_least_squares(parts, targets))


def _least_squares(rows: Sequence[tuple[float, float, float]], targets: Sequence[float]) -> tuple[float, ...]:
    """The three factors, none below 0, with which the rows come closest to their targets."""
    square = [[sum(row[i] * row[j] for row in rows) for j in range(3)] for i in range(3)]
    right = [sum(row[i] * target for row, target in zip(rows, targets, strict=True)) for i in range(3)]
    found = list(REWRITE_MS)
    for _ in range(_ROUNDS):
        for i in range(3):
            rest = sum(square[i][j] * found[j] for j in range(3) if j != i)
            found[i] = max(0.0, (right[i] - rest) / square[i][i])
    return tuple(found)
