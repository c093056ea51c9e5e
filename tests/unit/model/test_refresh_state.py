"""The state in the summary of a dynamic table's snapshot."""

import json

import pytest

from service.model.dynamic.state import REFRESH_STATE_PROPERTY, RefreshState, SourceState, state_of

STATE = RefreshState(
    "pass-1",
    "7",
    1_700_000_000_123,
    (SourceState("shop", "Orders", "u-orders", 41, schema_id=2), SourceState("shop", "totals", "u-totals", 5, False)),
    (SourceState("raw", "events", "u-events", None),),
)


def test_a_state_comes_back_from_a_summary_as_it_was() -> None:
    assert state_of({REFRESH_STATE_PROPERTY: STATE.text("acme")}) == STATE


def test_a_state_has_the_fields_of_the_specification_of_materialized_views() -> None:
    stored = json.loads(STATE.text("acme"))
    assert (stored["view-version-id"], stored["refresh-start-timestamp-ms"]) == (7, 1_700_000_000_123)
    names = ("type", "namespace", "name", "uuid", "snapshot-id")
    assert [{name: one[name] for name in names} for one in stored["source-states"]] == [
        {"type": "table", "namespace": ["acme__shop"], "name": "orders__1", "uuid": "u-orders", "snapshot-id": 41},
        {"type": "table", "namespace": ["acme__shop"], "name": "totals", "uuid": "u-totals", "snapshot-id": 5},
        {"type": "table", "namespace": ["acme__raw"], "name": "events", "uuid": "u-events", "snapshot-id": -1},
    ]


def test_a_version_that_is_no_number_gets_one() -> None:
    stored = json.loads(RefreshState("p", "a3f9", 0, ()).text("acme"))
    assert isinstance(stored["view-version-id"], int)
    assert stored["firn-definition"] == "a3f9"


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {REFRESH_STATE_PROPERTY: "no JSON"},
        {REFRESH_STATE_PROPERTY: "[]"},
        {REFRESH_STATE_PROPERTY: '{"view-version-id": 1, "refresh-start-timestamp-ms": 1, "source-states": []}'},
    ],
)
def test_what_another_program_wrote_is_no_state(summary: dict[str, str]) -> None:
    assert state_of(summary) is None
