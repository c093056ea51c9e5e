"""Which snapshots may expire. Pure, so that property tests can try every kind of history."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from service.catalog.history import History, Ref, Version
from service.model.times import HOUR_MS
from service.settings import SnapshotSettings


@dataclass(frozen=True)
class KeptSnapshot:
    """A snapshot that is old enough to expire, and why it is kept."""

    snapshot_id: int
    reason: str


@dataclass(frozen=True)
class ExpiryDecision:
    """The snapshots to expire, oldest first, and the branches and tags to expire."""

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    kept: tuple[KeptSnapshot, ...] = ()
    """By age only: old snapshots that are kept, except the current one, which always is."""

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs)


@dataclass(frozen=True)
class ExpiryResult:
    """The numbers of expired snapshots and deleted files, and the old snapshots that were kept."""

    snapshots: int = 0
    files: int = 0
    kept: tuple[KeptSnapshot, ...] = ()


NOTHING_EXPIRED = ExpiryResult()


def by_policy(history: History, policy: SnapshotSettings, needed: Set[int], now_ms: int) -> ExpiryDecision:
    """What a policy expires: all but the newest, and the last of each hour for some time, up to a number in all. The
    current snapshot, what a branch or tag keeps, and what is `needed` are kept in addition."""
    newest_first = [version.snapshot_id for version in reversed(history.versions)]
    kept = dict.fromkeys(newest_first[: policy.keep_last])
    for version in _last_of_each_hour(history, now_ms - policy.hourly_for_hours * HOUR_MS):
        kept[version.snapshot_id] = None
    return _all_but(history, set(list(kept)[: policy.keep_at_most]), needed, now_ms)


def by_age(history: History, older_than_ms: int, needed: Mapping[int, str], now_ms: int) -> ExpiryDecision:
    """Expire snapshots older than a time, except the current one, those `needed`, and what a branch or tag keeps."""
    young = {version.snapshot_id for version in history.versions if version.timestamp_ms >= older_than_ms}
    decision = _all_but(history, young, needed.keys(), now_ms)
    reasons: dict[int, list[str]] = defaultdict(list)
    for ref in history.refs:
        if ref.name not in decision.refs:
            for snapshot_id in _kept_by(ref, history, now_ms):
                reasons[snapshot_id].append(f"{'tag' if ref.is_tag else 'branch'} {ref.name}")
    for snapshot_id, reason in needed.items():
        reasons[snapshot_id].append(reason)
    settled = {*young, *decision.snapshots, history.current_id}
    kept = (v.snapshot_id for v in history.versions if v.snapshot_id not in settled)
    return replace(
        decision, kept=tuple(KeptSnapshot(snapshot_id, "; ".join(reasons[snapshot_id])) for snapshot_id in kept)
    )


def commits_until(slack: int, policy: SnapshotSettings, snapshots: int, expirable: int) -> int:
    """The number of commits after which a table with `snapshots` may have `slack` of them that its policy expires."""
    last = min(policy.keep_last, policy.keep_at_most)
    return max(0, last - snapshots) + max(1, slack - expirable)


def _last_of_each_hour(history: History, since_ms: int) -> Iterator[Version]:
    """Newest first. An hour's last snapshot is the same at any time, so that the choice is stable."""
    hours: set[int] = set()
    for version in reversed(history.versions):
        hour = version.timestamp_ms // HOUR_MS
        if hour not in hours and version.timestamp_ms >= since_ms:
            hours.add(hour)
            yield version


def _all_but(history: History, kept: Set[int], needed: Set[int], now_ms: int) -> ExpiryDecision:
    lapsed = [ref for ref in history.refs if _has_lapsed(ref, history, now_ms)]
    stays = {*kept, *needed, history.current_id}
    for ref in history.refs:
        if ref not in lapsed:
            stays |= _kept_by(ref, history, now_ms)
    gone = tuple(v.snapshot_id for v in history.versions if v.snapshot_id not in stays)
    return ExpiryDecision(gone, tuple(ref.name for ref in lapsed))


def _has_lapsed(ref: Ref, history: History, now_ms: int) -> bool:
    if ref.max_age_ms is None or ref.snapshot_id == history.current_id:
        return False
    made = next((v.timestamp_ms for v in history.versions if v.snapshot_id == ref.snapshot_id), None)
    return made is not None and now_ms - made > ref.max_age_ms


def _kept_by(ref: Ref, history: History, now_ms: int) -> set[int]:
    """The snapshot of a tag; of a branch, also those before it that the branch's own rule keeps."""
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
