"""Target lags are read as people write them, and shown in the greatest unit."""

import pytest

from service.errors import InvalidRequest
from service.model.dynamic.target_lag import parse_target_lag, show_target_lag


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30 seconds", 30),
        ("1 second", 1),
        ("5 minutes", 300),
        ("1 hour", 3600),
        ("1 DAY", 86_400),
        (" 2  Hours ", 7200),
        ("downstream", None),
        ("DOWNSTREAM", None),
    ],
)
def test_a_target_lag_is_a_number_and_a_unit(text: str, seconds: int | None) -> None:
    assert parse_target_lag(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "minutes", "5m", "0 seconds", "-1 minutes", "1.5 hours", "367 days", "1 week"]
)
def test_anything_else_is_refused_with_its_field_and_a_way_out(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_target_lag(text)
    assert refused.value.field == "target_lag"
    assert "'" in refused.value.message
    assert any(unit in refused.value.message for unit in ("minutes", "days"))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "downstream"),
        (1, "1 second"),
        (90, "90 seconds"),
        (300, "5 minutes"),
        (3600, "1 hour"),
        (172_800, "2 days"),
    ],
)
def test_what_is_shown_is_read_as_the_same(seconds: int | None, shown: str) -> None:
    assert show_target_lag(seconds) == shown
    assert parse_target_lag(shown) == seconds
