"""The change that a plan computes turns the old result into the new one, for queries of every class."""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.dynamic.duck import Duck
from tests.unit.dynamic.random_queries import CLASSES, a_case, changes

_ROUNDS = 3
_seen: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def _counts() -> object:
    yield
    print("\ncases per class: " + ", ".join(f"{name} {count}" for name, count in sorted(_seen.items())))


@pytest.mark.parametrize("kind", CLASSES)
def test_a_refreshed_result_equals_recomputation(kind: str) -> None:
    examples = max(1, settings.default.max_examples // 6 - 1) if settings.default else 1

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(st.integers(0, 1_000_000))
    def run(seed: int) -> None:
        draw = Random(f"{kind} {seed}")
        case = a_case(draw, kind)
        duck = Duck({one.name: one.fields for one in case.tables})
        for name, rows in case.rows.items():
            duck.insert(name, rows)
        duck.commit()
        table = duck.table(case.query, deduplicated=draw.random() < 0.1)
        assert table.compiled.not_incremental is None, (case.query, table.compiled.not_incremental)
        assert table.result() == table.recomputed(), case.query
        for _ in range(_ROUNDS):
            rows = {one.name: duck.rows(one.name) for one in case.tables}
            for change in changes(draw, case.tables, rows):
                for row in change.removed:
                    duck.delete(change.table, row)
                duck.insert(change.table, change.added)
            duck.commit()
            table.refresh()
            assert table.result() == table.recomputed(), case.query
        _seen[kind] += 1
        duck.db.close()

    run()
