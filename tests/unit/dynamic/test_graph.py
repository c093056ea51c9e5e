"""The graph of dynamic tables: who reads whom, in which order they are refreshed, and which tables are at its roots."""

import pytest

from service.dynamic.graph import Graph
from service.ledger.dynamic_tables import DynamicTable
from tests.support.dynamic import dynamic

# A diamond over two base tables, and a table apart.
TABLES = [
    dynamic("top", "left", "right"),
    dynamic("left", "bottom"),
    dynamic("right", "bottom", "customers"),
    dynamic("bottom", "orders"),
    dynamic("apart", "customers"),
]


@pytest.fixture
def graph() -> Graph:
    return Graph(TABLES)


def names(tables: list[DynamicTable]) -> list[str]:
    return [one.name.table for one in tables]


def test_upstream_has_each_table_once_and_after_its_sources(graph: Graph) -> None:
    found = names(graph.upstream(["uuid-top"]))
    assert sorted(found) == ["bottom", "left", "right", "top"]
    assert found.index("bottom") < min(found.index("left"), found.index("right"))
    assert found[-1] == "top"


def test_downstream_of_a_base_table_has_all_that_depend_on_it(graph: Graph) -> None:
    assert names(graph.downstream(["uuid-orders"]))[0] == "bottom"
    assert set(names(graph.downstream(["uuid-customers"]))) == {"right", "top", "apart"}


def test_downstream_of_a_dynamic_table_begins_with_itself(graph: Graph) -> None:
    assert names(graph.downstream(["uuid-left"])) == ["left", "top"]


def test_the_base_tables_are_those_that_are_not_dynamic_each_once(graph: Graph) -> None:
    found = {one.name.table for one in graph.base_tables(["uuid-top"])}
    assert found == {"orders", "customers"}
    assert len(graph.base_tables(["uuid-top", "uuid-apart"])) == 2


def test_sources_are_direct(graph: Graph) -> None:
    assert names(graph.sources("uuid-right")) == ["bottom"]


def test_a_path_leads_from_a_table_to_one_that_depends_on_it(graph: Graph) -> None:
    assert graph.path("uuid-bottom", "uuid-top") in (
        ["uuid-bottom", "uuid-left", "uuid-top"],
        ["uuid-bottom", "uuid-right", "uuid-top"],
    )
    assert graph.path("uuid-left", "uuid-left") == ["uuid-left"]
    assert graph.path("uuid-top", "uuid-bottom") == []
