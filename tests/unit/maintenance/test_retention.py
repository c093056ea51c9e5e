"""Which snapshots may go: never one that is needed; of the others the last ones and the hourly ones stay."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from service.catalog.history import History, Ref, Version
from service.maintenance.expire.retention import ExpiryDecision, by_age, by_policy, commits_until
from service.model.properties import TableProperties, describe, snapshot_policy, to_iceberg
from service.model.times import HOUR_MS
from service.settings import IcebergSettings, SnapshotSettings

MINUTE = 60_000
DEFAULT = SnapshotSettings()
NOBODY: frozenset[int] = frozenset()
START = 1_700_000_000_000 - 1_700_000_000_000 % HOUR_MS


def line(*times: int, refs: tuple[Ref, ...] = ()) -> History:
    """One snapshot after the other, at these times; their ids count from 1."""
    versions = tuple(Version(i, i - 1 if i > 1 else None, at) for i, at in enumerate(times, 1))
    return History(versions, refs, len(times) or None)


def every(gap: int, count: int) -> History:
    return line(*(START + i * gap for i in range(count)))


def without(history: History, verdict: ExpiryDecision) -> History:
    """What an expiry leaves."""
    gone = set(verdict.snapshots)
    versions = tuple(v for v in history.versions if v.snapshot_id not in gone)
    return replace(history, versions=versions, refs=tuple(r for r in history.refs if r.name not in verdict.refs))


def ids(history: History) -> set[int]:
    return {version.snapshot_id for version in history.versions}


def last(history: History) -> int:
    return history.versions[-1].timestamp_ms


gaps = st.sampled_from([0, MINUTE, 20 * MINUTE, HOUR_MS, 3 * HOUR_MS])
policies = st.builds(
    SnapshotSettings, keep_last=st.integers(1, 6), hourly_for_hours=st.integers(0, 8), keep_at_most=st.integers(1, 10)
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Any tree of snapshots, with clocks that go astray, and any branches and tags."""
    versions: list[Version] = []
    at = START
    for i in range(1, draw(st.integers(1, 30)) + 1):
        at += draw(gaps) - draw(st.sampled_from([0, 0, 0, 2 * MINUTE]))
        parent = draw(st.sampled_from([v.snapshot_id for v in versions])) if versions else None
        versions.append(Version(i, parent, at))
    known = st.sampled_from([v.snapshot_id for v in versions])
    limits = st.none() | gaps
    refs = draw(st.lists(st.tuples(known, st.integers(1, 4), limits, limits), max_size=4))
    named = tuple(Ref(f"ref-{i}", *values) for i, values in enumerate(refs))
    return History(tuple(versions), named, draw(known))


@st.composite
def questions(draw: st.DrawFn) -> tuple[History, SnapshotSettings, frozenset[int], int]:
    history = draw(histories())
    needed = draw(st.frozensets(st.integers(1, 31), max_size=5))
    return history, draw(policies), needed, last(history) + draw(gaps)


@given(questions())
def test_nothing_that_is_needed_goes(question: tuple[History, SnapshotSettings, frozenset[int], int]) -> None:
    history, policy, needed, now = question
    verdict = by_policy(history, policy, needed, now)
    gone = set(verdict.snapshots)
    assert history.current_id not in gone
    assert not gone & needed
    for ref in history.refs:
        if ref.name not in verdict.refs:
            assert ref.snapshot_id not in gone
    assert gone <= ids(history)


@given(questions())
def test_no_more_stay_than_the_policy_says_and_is_needed(
    question: tuple[History, SnapshotSettings, frozenset[int], int],
) -> None:
    history, policy, needed, now = question
    bare = replace(history, refs=())
    left = ids(without(bare, by_policy(bare, policy, needed, now)))
    assert len(left - needed - {bare.current_id}) <= policy.keep_at_most
    assert len(left) >= min(policy.keep_last, policy.keep_at_most, len(bare.versions))


@given(questions())
def test_what_stayed_stays_when_asked_again(
    question: tuple[History, SnapshotSettings, frozenset[int], int],
) -> None:
    history, policy, needed, now = question
    left = without(history, by_policy(history, policy, needed, now))
    assert by_policy(left, policy, needed, now) == ExpiryDecision()


@given(st.lists(gaps, min_size=1, max_size=60), policies, st.integers(1, 7))
def test_letting_go_bit_by_bit_keeps_what_letting_go_at_once_would(
    between: list[int], policy: SnapshotSettings, each: int
) -> None:
    """So an hour's snapshot is never given up for a later one that is given up in turn."""
    times = [START]
    for gap in between:
        times.append(times[-1] + gap)
    whole = line(*times)
    left = line()
    for i, version in enumerate(whole.versions, 1):
        left = History((*left.versions, version), (), version.snapshot_id)
        if i % each == 0 or i == len(whole.versions):
            left = without(left, by_policy(left, policy, NOBODY, version.timestamp_ms))
    assert ids(left) == ids(without(whole, by_policy(whole, policy, NOBODY, times[-1])))


def test_the_last_hundred_stay_and_then_the_last_of_each_hour_for_a_week() -> None:
    history = every(MINUTE, 10 * 24 * 60)
    left = without(history, by_policy(history, DEFAULT, NOBODY, last(history)))
    newest = {v.snapshot_id for v in history.versions[-100:]}
    older = [v for v in left.versions if v.snapshot_id not in newest]
    assert newest <= ids(left)
    # A week from minute 59 to minute 59 has 169 of them; two are among the last hundred.
    assert len(older) == 169 - 2
    assert {v.timestamp_ms % HOUR_MS for v in older} == {59 * MINUTE}
    assert len(left.versions) == 267


def test_a_burst_within_one_hour_leaves_the_last_hundred() -> None:
    history = every(50, 1000)
    assert len(by_policy(history, DEFAULT, NOBODY, last(history)).snapshots) == 900


def test_never_more_than_so_many_stay_and_the_oldest_go_first() -> None:
    history = every(HOUR_MS, 400)
    policy = SnapshotSettings(keep_last=10, hourly_for_hours=1000, keep_at_most=50)
    verdict = by_policy(history, policy, NOBODY, last(history))
    assert verdict.snapshots == tuple(range(1, 351))


def test_a_table_with_few_snapshots_keeps_them_however_old_they_are() -> None:
    history = every(24 * HOUR_MS, 100)
    assert by_policy(history, DEFAULT, NOBODY, last(history) + 1000 * 24 * HOUR_MS) == ExpiryDecision()


ONE = SnapshotSettings(keep_last=1, hourly_for_hours=0, keep_at_most=1)


def test_a_branch_keeps_so_many_as_it_asks_for_and_those_that_are_fresh() -> None:
    times = tuple(START + i * MINUTE for i in range(10))
    now = times[-1]

    def gone(ref: Ref) -> tuple[int, ...]:
        return by_policy(line(*times, refs=(ref,)), ONE, NOBODY, now).snapshots

    assert gone(Ref("b", 6)) == (1, 2, 3, 4, 5, 7, 8, 9)
    assert gone(Ref("b", 6, min_snapshots=3)) == (1, 2, 3, 7, 8, 9)
    assert gone(Ref("b", 6, max_snapshot_age_ms=7 * MINUTE)) == (1, 2, 7, 8, 9)


def test_a_tag_past_its_own_time_goes_and_no_longer_keeps_its_snapshot() -> None:
    times = (START, START + MINUTE, START + 2 * MINUTE)
    tag = Ref("t", 1, max_age_ms=MINUTE)
    assert by_policy(line(*times, refs=(tag,)), ONE, NOBODY, START + MINUTE) == ExpiryDecision((2,))
    assert by_policy(line(*times, refs=(tag,)), ONE, NOBODY, START + 2 * MINUTE) == ExpiryDecision((1, 2), ("t",))


@given(questions())
def test_by_age_whatever_is_young_or_needed_stays(
    question: tuple[History, SnapshotSettings, frozenset[int], int],
) -> None:
    history, _, needed, now = question
    limit = now - 5 * HOUR_MS
    verdict = by_age(history, limit, dict.fromkeys(needed, "needed"), now)
    gone = set(verdict.snapshots)
    assert not gone & {*needed, history.current_id}
    old = {v.snapshot_id for v in history.versions if v.timestamp_ms < limit}
    assert gone <= old
    # Of what is old all is accounted for, and what stays has a reason.
    assert {kept.snapshot_id for kept in verdict.kept} == old - gone - {history.current_id}
    assert all(kept.reason for kept in verdict.kept)
    bare = replace(history, refs=())
    assert set(by_age(bare, limit, {}, now).snapshots) == {
        v.snapshot_id for v in history.versions if v.timestamp_ms < limit and v.snapshot_id != history.current_id
    }


@given(st.integers(1, 40), policies, st.integers(1, 10))
def test_the_next_check_waits_until_enough_snapshots_can_expire(
    count: int, policy: SnapshotSettings, slack: int
) -> None:
    """Commits a second apart: the hours do not matter."""
    history = every(1000, count)
    expirable = len(by_policy(history, policy, NOBODY, last(history)).snapshots)
    if expirable >= slack:
        history, expirable = without(history, by_policy(history, policy, NOBODY, last(history))), 0
        count = len(history.versions)
    wait = commits_until(slack, policy, count, expirable)
    assert wait >= 1

    def gone_after(commits: int) -> int:
        later = every(1000, count + commits)
        return len(by_policy(later, policy, NOBODY, last(later)).snapshots)

    assert gone_after(wait) >= slack > gone_after(wait - 1)


def test_a_table_may_have_a_policy_of_its_own() -> None:
    wanted = TableProperties.model_validate({"snapshots": {"keep_last": 7, "hourly_for_hours": 0}})
    kept = to_iceberg(wanted, IcebergSettings())
    assert {k: v for k, v in kept.items() if k.startswith("firn.")} == {
        "firn.snapshots.keep_last": "7",
        "firn.snapshots.hourly_for_hours": "0",
    }
    assert snapshot_policy(kept, DEFAULT) == SnapshotSettings(keep_last=7, hourly_for_hours=0, keep_at_most=300)
    assert describe(kept)["snapshots"] == {"keep_last": 7, "hourly_for_hours": 0}
    assert "snapshots" not in describe(to_iceberg(TableProperties(), IcebergSettings()))
    assert (DEFAULT.keep_last, DEFAULT.hourly_for_hours, DEFAULT.keep_at_most) == (100, 168, 300)


def test_a_policy_that_another_program_wrote_and_that_cannot_be_is_not_followed() -> None:
    assert snapshot_policy({"firn.snapshots.keep_last": "0"}, DEFAULT) == DEFAULT
    assert snapshot_policy({"firn.snapshots.keep_last": "many"}, DEFAULT) == DEFAULT
