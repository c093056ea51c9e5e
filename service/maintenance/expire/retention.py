"""Which snapshots may go: pure, so that what must never go can be tried on every history there may be."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from service.catalog.history import History, Ref, Version
from service.settings import SnapshotSettings

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class KeptSnapshot:
    """A snapshot that is old enough to go, and why it stays."""

    snapshot_id: int
    reason: str


@dataclass(frozen=True)
class ExpiryDecision:
    """The snapshots to let go of, oldest first, and the branches and tags whose own time is over."""

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    kept: tuple[KeptSnapshot, ...] = ()
    """By age only: what is old enough and stays, less the current snapshot, which always does."""

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs)


@dataclass(frozen=True)
class ExpiryResult:
    """What came of an expiry: how many snapshots went, how many files were deleted, and what stays though it is old."""

    snapshots: int = 0
    files: int = 0
    kept: tuple[KeptSnapshot, ...] = ()


NOTHING_EXPIRED = ExpiryResult()


def by_policy(history: History, policy: SnapshotSettings, needed: Set[int], now_ms: int) -> ExpiryDecision:
    """What a policy lets go: all but the last so many and the last of each hour for so long, so many at most.

    What is current, what a branch or tag keeps and what is `needed` stays all the same.
    """
    newest_first = [version.snapshot_id for version in reversed(history.versions)]
    kept = dict.fromkeys(newest_first[: policy.keep_last])
    for version in _last_of_each_hour(history, now_ms - policy.hourly_for_hours * HOUR_MS):
        kept[version.snapshot_id] = None
    return _all_but(history, set(list(kept)[: policy.keep_at_most]), needed, now_ms)


def by_age(history: History, older_than_ms: int, needed: Mapping[int, str], now_ms: int) -> ExpiryDecision:
    """Snapshots older than a time; what is current, referred to or `needed`, each for a reason, stays all the same."""
    young = {version.snapshot_id for version in history.versions if version.timestamp_ms >= older_than_ms}
    verdict = _all_but(history, young, needed.keys(), now_ms)
    reasons: dict[int, list[str]] = defaultdict(list)
    for ref in history.refs:
        if ref.name not in verdict.refs:
            for snapshot_id in _kept_by(ref, history, now_ms):
                reasons[snapshot_id].append(f"{'tag' if ref.is_tag else 'branch'} {ref.name}")
    for snapshot_id, reason in needed.items():
        reasons[snapshot_id].append(reason)
    settled = {*young, *verdict.snapshots, history.current_id}
    kept = (v.snapshot_id for v in history.versions if v.snapshot_id not in settled)
    return replace(
        verdict, kept=tuple(KeptSnapshot(snapshot_id, "; ".join(reasons[snapshot_id])) for snapshot_id in kept)
    )


def commits_until(slack: int, policy: SnapshotSettings, snapshots: int, expirable: int) -> int:
    """After how many more commits a table of so many snapshots may have `slack` that its policy lets go."""
    last = min(policy.keep_last, policy.keep_at_most)
    return max(0, last - snapshots) + max(1, slack - expirable)


def _last_of_each_hour(history: History, since_ms: int) -> Iterator[Version]:
    """Newest first. An hour's last snapshot stays that for ever, so the choice does not move as time goes on."""
    hours: set[int] = set()
    for version in reversed(history.versions):
        hour = version.timestamp_ms // HOUR_MS
        if hour not in hours and version.timestamp_ms >= since_ms:
            hours.add(hour)
            yield version


def _all_but(history: History, kept: Set[int], needed: Set[int], now_ms: int) -> ExpiryDecision:
    lapsed = [ref for ref in history.refs if _is_over(ref, history, now_ms)]
    stays = {*kept, *needed, history.current_id}
    for ref in history.refs:
        if ref not in lapsed:
            stays |= _kept_by(ref, history, now_ms)
    gone = tuple(v.snapshot_id for v in history.versions if v.snapshot_id not in stays)
    return ExpiryDecision(gone, tuple(ref.name for ref in lapsed))


def _is_over(ref: Ref, history: History, now_ms: int) -> bool:
    if ref.max_age_ms is None or ref.snapshot_id == history.current_id:
        return False
    made = next((v.timestamp_ms for v in history.versions if v.snapshot_id == ref.snapshot_id), None)
    return made is not None and now_ms - made > ref.max_age_ms


def _kept_by(ref: Ref, history: History, now_ms: int) -> set[int]:
    """A tag's snapshot; a branch's and those before it that its own rule asks for."""
    versions = {version.snapshot_id: version for version in history.versions}
    kept: set[int] = set()
    at: int | None = ref.snapshot_id
    while at in versions and at not in kept:
        version = versions[at]
        fresh = ref.max_snapshot_age_ms is not None and now_ms - version.timestamp_ms <= ref.max_snapshot_age_ms
        if len(kept) >= ref.min_snapshots and not fresh:
            break
        kept.add(version.snapshot_id)
        at = version.parent_id
    return kept
