"""The steps of a refresh are views, or kept rows if many paths lead to them."""

import re
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from service.engine.jobs.dynamic.refresh import make_steps
from tests.unit.dynamic.duck import Duck
from tests.unit.dynamic.random_queries import CLASSES, a_case

_MOST_LEAVES = 120


class Leaves:
    """The views of a refresh: how many leaves the plan of each has, where kept rows are one leaf."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def make(self, name: str, sql: str) -> None:
        self.of[name] = sum(self.of[word] for word in re.findall(r"\w+", sql)) or 1

    def keep(self, name: str, sql: str) -> None:
        self.of[name] = 1


@pytest.mark.parametrize("kind", CLASSES)
def test_few_rows_are_not_computed_again_so_often_that_spark_plans_longer_than_it_runs(kind: str) -> None:
    for seed in range(4):
        case = a_case(Random(f"{kind} {seed}"), kind)
        duck = Duck({one.name: one.fields for one in case.tables})
        duck.commit()
        table = duck.table(case.query)
        views = Leaves()
        result: Any = SimpleNamespace(few=True, rows=[], views=views, job=SimpleNamespace(sources=()))
        make_steps(result, table.compiled.plan(set(range(len(table.tables)))))
        duck.db.close()
        assert max(views.of.values()) <= _MOST_LEAVES, case.query
