"""What small files cost queries, and what merging them costs: estimates from what was measured. Pure.

Until there is evidence, defaults stand in: measured on two cores with a local disk. Each estimate says what it needs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median

from service.catalog.files.small import MIB, SmallFiles
from service.maintenance.advise.query_log import QuerySample

# What a query pays for each further file it opens, and for the planning of a table that has next to none.
OPENING_MS = 1.5
PLANNING_MS = 2.0
# No query takes less, however few files it opens.
LEAST_MS = 20.0
# What a compaction takes: so much whatever it merges, so much for each file and each MiB.
REWRITE_MS = (200.0, 1.0, 30.0)
# So many pairs of queries must be there before they are believed more than the default.
_ENOUGH_PAIRS = 20
# The default counts as much as so many compactions would.
_PRIOR = 3
# A compaction that took so many times more or less than usual counts as if it had taken just that.
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

    @property
    def fewer(self) -> int:
        return self.files - self.files_after


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """What a table's queries are like now; None where none was looked at closely since it was last compacted."""

    per_hour: float = 0.0
    planning_ms: float | None = None
    files_opened: float | None = None
    query_ms: float | None = None
    """Of those that read this table alone."""
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
    """A compaction of the past: what it merged, and how long it took."""

    files: int
    bytes: int
    took_ms: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a merge would save and cost. `worth` is what it saves over the horizon, in units of its cost."""

    saving_ms: float
    """By each query."""
    saving_ms_per_hour: float
    cost_ms: float
    worth: float


def merged(files: int, found: SmallFiles, target_bytes: int, most: int | None = None) -> MergeSize:
    """What merging the files worth it comes to, of a table with so many files; at most `most` of them at once."""
    sizes: dict[tuple[object, ...], list[int]] = {}
    for file in found.worth_merging:
        sizes.setdefault(file.group, []).append(file.bytes)
    left = len(found.worth_merging) if most is None else most
    fewer = count = size = 0
    for group in sorted(sizes.values(), key=len, reverse=True):
        taken = sorted(group)[:left]
        if len(taken) < 2:
            break
        left -= len(taken)
        outputs = max(1, -(-sum(taken) // target_bytes))
        if outputs < len(taken):
            fewer, count, size = fewer + len(taken) - outputs, count + len(taken), size + sum(taken)
    return MergeSize(files, files - fewer, count, size)


def queries_now(samples: Sequence[QuerySample], per_hour: float) -> QueryCosts:
    """What the latest samples say."""
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
    """What a merge is worth. The files a query opens shrink as the table's do, but where it opens any, one is left."""
    kept = merge.files_after / merge.files if merge.files else 1.0
    opened, planning = queries.files_opened or 0.0, queries.planning_ms or 0.0
    opened_after = max(opened * kept, min(opened, 1.0))
    planning_after = min(planning, PLANNING_MS) + max(0.0, planning - PLANNING_MS) * kept
    saving = max(0.0, planning - planning_after) + opening_ms * (opened - opened_after)
    if queries.query_ms is not None:
        saving = min(saving, max(0.0, queries.query_ms - LEAST_MS))  # nothing saves more than there is
    cost = rewriting.cost_ms(merge)
    an_hour = saving * queries.per_hour
    return Forecast(saving, an_hour, cost, an_hour * horizon_hours / max(cost, 1.0) if cost else 0.0)


def opening_ms(samples: Iterable[Sequence[QuerySample]]) -> float:
    """What each further file costs a query: the median over pairs of queries of one table (Theil and Sen's slope).

    Only pairs that read about as many bytes from another number of files: else it would be the bytes' price.
    `samples` are those of each table.
    """
    slopes = [slope for of_one in samples for slope in _slopes(of_one)]
    return max(0.0, median(slopes)) if len(slopes) >= _ENOUGH_PAIRS else OPENING_MS


def _slopes(samples: Sequence[QuerySample]) -> Iterable[float]:
    known = [(s.files, s.bytes, s.total_ms - s.planning_ms) for s in samples if s.total_ms is not None and s.files]
    for one, other in combinations(known, 2):
        if one[0] != other[0] and abs(one[1] - other[1]) <= max(_ABOUT_BYTES, _ABOUT_SHARE * max(one[1], other[1])):
            yield (one[2] - other[2]) / (one[0] - other[0])


def rewriting(done: Iterable[PastCompaction]) -> RewriteCosts:
    """What compactions take, from those of the past: least squares against the defaults, none below 0.

    How fast this machine is altogether is the median of what they took in units of what the defaults say; each part
    of the price leans on that. One that had to wait for long counts as little more than a slow one.
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
    wanted = [min(max(ratio, speed / _ODD), speed * _ODD) for ratio in ratios]
    for place, ms in enumerate(REWRITE_MS):
        parts.append((1 / ms if place == 0 else 0, 1 / ms if place == 1 else 0, 1 / ms if place == 2 else 0))
        wanted.append(speed)
    return RewriteCosts(*_least_squares(parts, wanted))


def _least_squares(rows: Sequence[tuple[float, float, float]], wanted: Sequence[float]) -> tuple[float, ...]:
    """The three factors, none below 0, by which the rows come closest to what is wanted of each."""
    square = [[sum(row[i] * row[j] for row in rows) for j in range(3)] for i in range(3)]
    aim = [sum(row[i] * want for row, want in zip(rows, wanted, strict=True)) for i in range(3)]
    found = list(REWRITE_MS)
    for _ in range(_ROUNDS):
        for i in range(3):
            rest = sum(square[i][j] * found[j] for j in range(3) if j != i)
            found[i] = max(0.0, (aim[i] - rest) / square[i][i])
    return tuple(found)
