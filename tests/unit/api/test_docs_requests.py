"""The requests of the page at /docs: in its order each finds what it needs, and nothing in its way."""

import json
import re
import shlex
from typing import Any

import pytest

from handlers import discover
from service.api.docs_page import page
from service.api.docs_requests import Shown, Walkthrough, curl, renamed
from service.api.docs_sections import sections
from service.ingest.files import read_table_file
from service.operations.groups import GROUPS
from service.operations.operation import Example, Operation

OPERATIONS = {operation.name: operation for operation in discover()}


def walked() -> list[Shown]:
    walk = Walkthrough()
    names = [name for group in GROUPS.values() for name in group]
    examples = [example for name in names for example in walk.examples(OPERATIONS[name])]
    return [shown for first, example in examples for shown in [*first, example]] + [
        shown for section in sections() for shown in section.requests
    ]


ALL = walked()


def of(name: str, *examples: Example) -> list[tuple[list[Shown], Shown]]:
    return Walkthrough().examples(Operation(**{**vars(OPERATIONS[name]), "examples": examples}))


def request(shown: Shown) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(shown.body)
    return parsed


def test_every_request_comes_after_those_it_needs() -> None:
    seen: set[str] = set()
    for shown in ALL:
        assert set(shown.needs) <= seen, shown.id
        assert shown.id not in seen
        seen.add(shown.id)


def test_every_value_that_a_request_takes_comes_from_an_earlier_one_that_it_needs() -> None:
    known = {shown.id: shown for shown in ALL}
    taken = 0
    for shown in ALL:
        for name in re.findall(r"\$([A-Z]+_\d+)", shown.body + shown.path):
            taken += 1
            assert any(name in known[needed].keeps for needed in shown.needs), shown.id
    assert taken > 5


def test_no_table_is_created_twice() -> None:
    created: set[tuple[str, str]] = set()
    for shown in ALL:
        if '"CREATE_TABLE"' in shown.body and "if_not_exists" not in shown.body:
            sent = request(shown)
            name = (sent["namespace"], sent.get("table") or read_table_file(sent["config"]).name)
            if any('"DROP_TABLE"' in known.body for known in ALL if known.id in shown.needs):
                continue
            assert name not in created, shown.id
            created.add(name)
    assert len(created) > 20


CREATE = {
    "operation": "CREATE_TABLE",
    "tenant_id": "acme",
    "table": "t",
    "schema": {"fields": {"id": {"type": "long"}}},
}
DELETE = {"operation": "DELETE", "tenant_id": "acme", "table": "t", "all": True}
DONE = {"success": True, "table": "t", "data": [{"name": "t"}]}


def test_examples_share_what_none_of_them_changed() -> None:
    (first, one), (more, two) = of(
        "DELETE", Example("a", {**DELETE, "dry_run": True}, DONE, (CREATE,)), Example("b", DELETE, DONE, (CREATE,))
    )
    assert (len(first), more) == (1, [])
    assert one.needs == two.needs == [first[0].id]


def test_an_example_after_a_change_gets_tables_of_its_own() -> None:
    (_, _), (first, two) = of("DELETE", Example("a", DELETE, DONE, (CREATE,)), Example("b", DELETE, DONE, (CREATE,)))
    assert request(first[0])["table"] == request(two)["table"] == "t_2"
    assert two.answer == {"success": True, "table": "t_2", "data": [{"name": "t"}]}


def test_an_example_that_begins_with_the_change_before_it_continues() -> None:
    (_, one), (more, two) = of(
        "DELETE", Example("a", DELETE, DONE, (CREATE,)), Example("b", DELETE, DONE, (CREATE, DELETE))
    )
    assert more == []
    assert two.needs[-1] == one.id


def test_a_name_in_sql_is_the_new_one() -> None:
    sql = {"operation": "QUERY", "tenant_id": "acme", "sql": "SELECT * FROM t WHERE total > 1"}
    other = {**CREATE, "schema": {"fields": {"x": {"type": "long"}}}}
    (_, _), (_, two) = of("QUERY", Example("a", sql, DONE, (CREATE,)), Example("b", sql, DONE, (other,)))
    assert request(two)["sql"] == "SELECT * FROM t_2 WHERE total > 1"


def test_a_request_id_that_an_example_takes_is_chosen_by_the_client() -> None:
    undo = {"operation": "UNDO", "tenant_id": "acme", "table": "t", "request_id": "7d9f"}
    [(first, shown)] = of(
        "UNDO", Example("a", undo, DONE, (CREATE, DELETE), {"request_id": (2, "metadata.request_id")})
    )
    assert first[1].headers == {"X-Request-Id": "delete-t"}
    assert request(shown)["request_id"] == "delete-t"


@pytest.mark.parametrize("shown", ALL, ids=lambda shown: shown.id)
def test_a_command_is_words_of_a_shell(shown: Shown) -> None:
    words = shlex.split(curl(shown).splitlines()[0] if not shown.body else curl(shown))
    assert words[:2] == ["curl", "-s"]
    if shown.body:
        assert shown.body in words


def test_the_page_has_the_commands_in_this_order() -> None:
    ids = re.findall(r'<div class="request" id="([^"]+)"', page(list(OPERATIONS.values())))
    assert ids == [shown.id for shown in ALL]


def test_rows_keep_their_values_when_names_change() -> None:
    answer = {"tables": ["t", "u"], "sample": [{"t": "t"}], "n": 1}
    assert renamed(answer, {"t": "t_2"}) == {"tables": ["t_2", "u"], "sample": [{"t": "t"}], "n": 1}
