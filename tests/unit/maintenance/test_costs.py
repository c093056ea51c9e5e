"""What is reckoned from measurements: robust against odd ones, and never the less for more to gain."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.files.data_files import DataFile
from service.catalog.files.small import MIB, find_small_files
from service.maintenance.advise.costs import (
    LEAST_MS,
    OPENING_MS,
    REWRITE_MS,
    MergeSize,
    PastCompaction,
    QueryCosts,
    RewriteCosts,
    forecast,
    merged,
    opening_ms,
    queries_now,
    rewriting,
)
from service.maintenance.advise.query_log import QuerySample

TARGET = 100
SMALL = 60
REWRITING = RewriteCosts(*REWRITE_MS)

sizes = st.lists(st.integers(1, 150), max_size=40)
groups = st.lists(sizes, max_size=5)
queries = st.builds(
    QueryCosts,
    per_hour=st.floats(0, 1e6),
    planning_ms=st.none() | st.floats(0, 1e5),
    files_opened=st.none() | st.floats(0, 1e5),
    query_ms=st.none() | st.floats(0, 1e6),
)
merges = st.builds(
    lambda files, share, size: MergeSize(files, max(1, round(files * share)), files, size),
    st.integers(1, 10_000),
    st.floats(0, 1),
    st.integers(0, 10**12),
)
opening = st.floats(0, 100)


def files_of(parts: list[list[int]]) -> list[DataFile]:
    return [DataFile(f"{i}-{j}", size, 1, (i,)) for i, part in enumerate(parts) for j, size in enumerate(part)]


def merge_of(parts: list[list[int]], min_files: int = 3, most: int | None = None) -> MergeSize:
    files = files_of(parts)
    return merged(len(files), find_small_files(files, SMALL, min_files), TARGET, most)


def sample(files: int, total_ms: float | None, size: int = 1000, planning_ms: int = 3, at_ms: int = 0) -> QuerySample:
    return QuerySample(at_ms, total_ms, planning_ms, files, size)


class TestMerged:
    @pytest.mark.parametrize(
        ("parts", "expected"),
        [
            ([], MergeSize(0, 0)),
            ([[10, 10]], MergeSize(2, 2)),
            ([[10, 10, 10]], MergeSize(3, 1, 3, 30)),
            ([[10, 10, 10, 80, 90]], MergeSize(5, 3, 3, 30)),
            ([[50, 50, 50]], MergeSize(3, 2, 3, 150)),
            ([[10] * 3, [10] * 4, [10]], MergeSize(8, 3, 7, 70)),
        ],
    )
    def test_each_partition_with_enough_small_files_is_merged_into_files_of_the_target_size(
        self, parts: list[list[int]], expected: MergeSize
    ) -> None:
        assert merge_of(parts) == expected

    def test_files_with_delete_files_are_rewritten_even_if_they_do_not_become_fewer(self) -> None:
        light = [DataFile(f"{n}", 90, 10, (0,), 1, (f"d{n}",)) for n in range(3)]
        assert merged(4, find_small_files([*light, *files_of([[90]])], SMALL, 3), TARGET) == MergeSize(4, 4, 3, 270, 3)
        heavy = DataFile("h", 90, 10, (0,), 5, ("d",))
        assert merged(1, find_small_files([heavy], SMALL, 3), TARGET) == MergeSize(1, 1, 1, 90, 1)

    def test_at_most_so_many_files_are_merged_the_partitions_with_most_first(self) -> None:
        assert merge_of([[10] * 3, [5] * 6], most=6) == MergeSize(9, 4, 6, 30)
        assert merge_of([[10] * 3, [5] * 6], most=8) == MergeSize(9, 3, 8, 50)
        assert merge_of([[10] * 3, [5] * 6], most=7) == MergeSize(9, 4, 6, 30)

    @given(groups, st.integers(2, 5), st.none() | st.integers(2, 100))
    def test_there_are_never_more_files_after_than_before_nor_fewer_than_their_bytes_need(
        self, parts: list[list[int]], min_files: int, most: int | None
    ) -> None:
        merge = merge_of(parts, min_files, most)
        assert 0 <= merge.fewer <= merge.merged <= min(merge.files, most or merge.files)
        assert merge.bytes_merged <= TARGET * (merge.merged - merge.fewer)
        assert (merge.fewer > 0) == (merge.merged > 0)

    @given(groups, st.integers(0, 4), st.integers(1, SMALL - 1), st.integers(2, 5))
    def test_another_small_file_never_makes_the_gain_less(
        self, parts: list[list[int]], place: int, size: int, min_files: int
    ) -> None:
        more = [list(part) for part in parts] + [[]] * (place + 1 - len(parts))
        more[place] = [*more[place], size]
        assert merge_of(more, min_files).fewer >= merge_of(parts, min_files).fewer

    @given(groups, st.integers(2, 5))
    def test_where_the_count_rule_finds_nothing_nothing_is_merged(self, parts: list[list[int]], least: int) -> None:
        if not find_small_files(files_of(parts), SMALL, least).worth_merging:
            assert merge_of(parts, least).merged == 0


class TestForecast:
    @given(queries, merges, opening, st.integers(1, 1000))
    def test_more_delete_files_removed_never_save_less(
        self, of: QueryCosts, merge: MergeSize, ms: float, more: int
    ) -> None:
        before, after = (forecast(of, m, ms, REWRITING, 24) for m in (merge, replace(merge, deletes=more)))
        assert after.saving_ms >= before.saving_ms
        assert after.cost_ms == before.cost_ms

    def test_a_query_no_longer_opens_the_delete_files_of_its_files(self) -> None:
        queries = QueryCosts(per_hour=100, planning_ms=0, files_opened=5, query_ms=1000)
        found = forecast(queries, MergeSize(10, 10, 4, 400, deletes=4), 1.5, REWRITING, 24)
        assert found.saving_ms == pytest.approx(5 * 0.4 * 1.5)
        assert found.worth > 0

    @given(queries, merges, opening, st.floats(0, 1e6))
    def test_more_queries_never_save_less(self, of: QueryCosts, merge: MergeSize, ms: float, more: float) -> None:
        busier = replace(of, per_hour=of.per_hour + more)
        before, after = (forecast(q, merge, ms, REWRITING, 24) for q in (of, busier))
        assert after.saving_ms_per_hour >= before.saving_ms_per_hour
        assert after.worth >= before.worth
        assert after.cost_ms == before.cost_ms

    @given(queries, merges, opening, st.floats(0, 1e5))
    def test_queries_that_open_more_files_never_save_less(
        self, of: QueryCosts, merge: MergeSize, ms: float, more: float
    ) -> None:
        wider = replace(of, files_opened=(of.files_opened or 0) + more)
        before, after = (forecast(q, merge, ms, REWRITING, 24).saving_ms for q in (of, wider))
        assert after >= before - 1e-6 * before

    @given(queries, merges, opening, st.integers(1, 10_000))
    def test_more_files_merged_into_as_many_never_save_less(
        self, of: QueryCosts, merge: MergeSize, ms: float, more: int
    ) -> None:
        larger = replace(merge, files=merge.files + more)
        before, after = (forecast(of, m, ms, REWRITING, 24).saving_ms for m in (merge, larger))
        assert after >= before - 1e-6 * before

    @given(queries, merges, opening)
    def test_no_queries_save_nothing(self, of: QueryCosts, merge: MergeSize, ms: float) -> None:
        nothing = forecast(replace(of, per_hour=0.0), merge, ms, REWRITING, 24)
        assert (nothing.saving_ms_per_hour, nothing.worth) == (0, 0)

    @given(queries, opening, st.integers(0, 1000))
    def test_nothing_to_merge_is_worth_nothing_and_costs_nothing(self, of: QueryCosts, ms: float, files: int) -> None:
        nothing = forecast(of, MergeSize(files, files), ms, REWRITING, 24)
        assert (nothing.saving_ms, nothing.cost_ms, nothing.worth) == (pytest.approx(0, abs=1e-6), 0, 0)

    @given(queries, merges, opening)
    def test_a_query_never_saves_more_than_it_takes_nor_less_than_nothing(
        self, of: QueryCosts, merge: MergeSize, ms: float
    ) -> None:
        saving = forecast(of, merge, ms, REWRITING, 24).saving_ms
        assert saving >= -1e-6
        assert of.query_ms is None or saving <= max(0, of.query_ms - LEAST_MS)

    def test_what_is_pruned_to_one_file_gains_nothing_from_fewer(self) -> None:
        of = QueryCosts(100, planning_ms=1, files_opened=1, query_ms=50)
        assert forecast(of, MergeSize(60, 1, 60, 60), 2.0, REWRITING, 24).saving_ms == 0

    def test_the_figures_are_reckoned_as_the_documents_say(self) -> None:
        of = QueryCosts(100, planning_ms=12, files_opened=60, query_ms=200)
        got = forecast(of, MergeSize(60, 1, 60, 6 * MIB), 1.5, RewriteCosts(400, 4, 20), 24)
        assert got.saving_ms == pytest.approx(59 * 1.5 + 10 * 59 / 60)
        assert got.cost_ms == 400 + 60 * 4 + 6 * 20
        assert got.worth == pytest.approx(got.saving_ms * 100 * 24 / 760)


class TestQueriesNow:
    def test_without_samples_only_the_count_is_known(self) -> None:
        assert queries_now([], 7.0) == QueryCosts(7.0)

    def test_the_latest_count_and_those_of_joins_have_no_time(self) -> None:
        old = [sample(500, 900.0)] * 30
        new = [sample(4, None, planning_ms=5)] * 10 + [sample(2, 40.0, planning_ms=5)] * 10
        assert queries_now([*old, *new], 1.0) == QueryCosts(1.0, 5, 3, 40.0, 20)


class TestOpening:
    def test_few_pairs_are_no_evidence(self) -> None:
        assert opening_ms([]) == OPENING_MS
        assert opening_ms([[sample(10, 50.0), sample(1, 20.0)]] * 3) == OPENING_MS

    @given(st.floats(0.1, 50), st.lists(st.integers(1, 500), min_size=8, max_size=20, unique=True))
    def test_a_price_is_found_in_spite_of_a_fifth_of_odd_queries(self, price: float, opened: list[int]) -> None:
        result = [sample(n, 20 + price * n + 3) for n in opened]
        odd = [replace(s, total_ms=10_000.0) for s in result[: len(result) // 8]]
        assert opening_ms([result + odd]) == pytest.approx(price, rel=0.25)

    def test_queries_that_read_more_bytes_say_nothing_of_files(self) -> None:
        result = [sample(n, 20.0 + 400 * n, size=n * 60 * MIB) for n in range(1, 9)]
        assert opening_ms([result] * 5) == OPENING_MS

    def test_tables_are_not_compared_with_each_other(self) -> None:
        assert opening_ms([[sample(n, 1000.0 * n)] for n in range(1, 40)]) == OPENING_MS

    @given(st.lists(st.lists(st.builds(sample, st.integers(0, 50), st.none() | st.floats(0, 1e4)), max_size=12)))
    def test_it_is_never_below_nothing(self, result: list[list[QuerySample]]) -> None:
        assert opening_ms(result) >= 0


class TestRewriting:
    def test_the_defaults_hold_until_there_is_evidence(self) -> None:
        assert rewriting([]) == RewriteCosts(*(pytest.approx(ms) for ms in REWRITE_MS))

    def test_what_compactions_took_is_learned(self) -> None:
        """A machine three times as slow as the defaults say."""
        slow = RewriteCosts(*(3 * ms for ms in REWRITE_MS))
        done = [
            PastCompaction(files, size * MIB, slow.cost_ms(MergeSize(files, 1, files, size * MIB)))
            for files in (3, 30, 300, 1000)
            for size in (1, 50, 1000)
        ] * 5
        learned = rewriting(done)
        for files, size in ((10, 10), (500, 500), (100, 2)):
            merge = MergeSize(files, 1, files, size * MIB)
            assert learned.cost_ms(merge) == pytest.approx(slow.cost_ms(merge), rel=0.35)

    def test_one_that_waited_for_long_changes_little(self) -> None:
        usual = [PastCompaction(50, 10 * MIB, 800.0)] * 20
        merge = MergeSize(50, 1, 50, 10 * MIB)
        calm = rewriting(usual).cost_ms(merge)
        assert rewriting([*usual, PastCompaction(50, 10 * MIB, 600_000.0)]).cost_ms(merge) == pytest.approx(
            calm, rel=0.1
        )

    @given(
        st.lists(
            st.builds(PastCompaction, st.integers(0, 10**6), st.integers(0, 10**13), st.floats(0, 1e8)), max_size=20
        )
    )
    def test_no_compaction_is_ever_thought_to_take_less_than_nothing(self, done: list[PastCompaction]) -> None:
        learned = rewriting(done)
        assert min(learned.fixed_ms, learned.file_ms, learned.mib_ms) >= 0
        assert learned.cost_ms(MergeSize(9, 9)) == 0
