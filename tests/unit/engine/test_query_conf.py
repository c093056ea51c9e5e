"""What the process for queries is started with, and when its heap counts as full."""

import itertools
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from service.engine.session.conf import query_conf, spark_conf, spool
from service.engine.session.heap import HeapSample, MemoryRelief, is_full, watch
from service.errors import QueryTooExpensive
from service.model.call import Call
from service.settings import Settings, load


def settings(tmp_path: Path, **variables: str) -> Settings:
    return load({"FIRN_HOME": str(tmp_path), **{f"FIRN_SPARK__{name}": value for name, value in variables.items()}})


def test_it_is_that_of_changes_but_for_its_name_its_folder_and_the_size_of_results(tmp_path: Path) -> None:
    changes, queries = spark_conf(settings(tmp_path), []), query_conf(settings(tmp_path), [])
    differing = {name for name in queries if queries[name] != changes.get(name)}
    assert differing == {"spark.app.name", "spark.local.dir", "spark.driver.maxResultSize"}
    assert changes.keys() <= queries.keys()
    assert Path(queries["spark.local.dir"]) == spool(tmp_path, queries=True)
    assert not Path(queries["spark.local.dir"]).is_relative_to(spool(tmp_path)), "the other JVM empties its own folder"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"DRIVER_MEMORY": "3g"}, "3g"),
        ({"DRIVER_MEMORY": "3g", "QUERY_MEMORY": "1g"}, "1g"),
        ({"CONF": '{"spark.driver.memory": "4g"}', "QUERY_MEMORY": "1g"}, "1g"),
        ({"QUERY_MEMORY": "1g", "QUERY_CONF": '{"spark.driver.memory": "5g"}'}, "5g"),
    ],
)
def test_its_heap_is_its_own_if_it_is_given_one(tmp_path: Path, variables: dict[str, str], expected: str) -> None:
    assert query_conf(settings(tmp_path, **variables), [])["spark.driver.memory"] == expected


def test_the_settings_of_the_operator_come_first(tmp_path: Path) -> None:
    conf = '{"spark.local.dir": "/big", "spark.cores.max": "4"}'
    found = query_conf(settings(tmp_path, CONF=conf, QUERY_CONF='{"spark.cores.max": "8"}'), [])
    assert (found["spark.local.dir"], found["spark.cores.max"]) == ("/big", "8")


def sampled(seconds: float, collecting: float, used: float) -> "deque[HeapSample]":
    """Samples every half a second, with this part of the time in garbage collection."""
    return deque(HeapSample(i / 2, i / 2 * collecting, used) for i in range(int(seconds * 2) + 1))


@pytest.mark.parametrize(
    ("samples", "full"),
    [
        (sampled(6, 0.9, 0.95), True),
        (sampled(2, 0.9, 0.95), False),  # it may recover
        (sampled(6, 0.5, 0.95), False),  # it gets on
        (sampled(6, 0.9, 0.5), False),  # there is room
    ],
)
def test_a_heap_is_full_if_little_but_collecting_happens_in_it(samples: Any, full: bool) -> None:
    assert is_full(samples) is full


def test_only_the_last_seconds_count() -> None:
    calm = [HeapSample(i, 0.0, 0.9) for i in range(100)]
    busy = [HeapSample(100 + i / 2, i / 2 * 0.9, 0.99) for i in range(1, 20)]
    seen: list[HeapSample] = []

    def samples() -> Any:
        for sample in [*calm, *busy]:
            seen.append(sample)
            yield sample

    told: list[bool] = []
    watch(samples(), lambda: told.append(True))
    assert told == [True]
    assert 103 <= seen[-1].at_s <= 106


def test_queries_are_cancelled_while_the_heap_becomes_full_and_nothing_else() -> None:
    query, change, committing = Call("1", computes_table=True), Call("2"), Call("3", computes_table=True)
    committing.seal()
    relief, times = MemoryRelief(), itertools.count(1.0)

    def samples() -> Any:
        for used in (0.9, 0.5, 0.95, 0.96, 0.4, 0.9):  # garbage is collected in passing
            yield HeapSample(next(times), next(times), used)
            assert not query.cancelled
        yield from (HeapSample(next(times), 60.0, 0.95) for i in range(4))  # nothing was collected
        assert not query.cancelled
        yield from (HeapSample(next(times), next(times), 0.95) for i in range(3))

    given = samples()
    with relief.offering(query), relief.offering(change), relief.offering(committing):
        relief.watch(given, lambda: query.cancelled)
    with pytest.raises(QueryTooExpensive, match="more memory than one query may take"):
        query.check()
    assert not change.cancelled
    assert not committing.cancelled


def test_a_query_that_has_ended_is_not_cancelled() -> None:
    relief, call = MemoryRelief(), Call("1", computes_table=True)
    with relief.offering(call):
        pass
    relief.relieve()
    assert not call.cancelled
