"""What a caller learns of a value that does not fit its field."""

from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.model.validation import refusal
from service.settings.kinds import Window


class Place(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    of: str


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    at: int | str | Place | None = None
    key: str | None = Field(default=None, min_length=1)
    mark: str = Field(default=",", max_length=1)
    window: Window | None = None
    percent: float = Field(default=1, gt=0)
    places: list[Annotated[Place, Field()] | int] = []


def error_of(**fields: Any) -> tuple[str, str | None]:
    with pytest.raises(ValidationError) as found:
        Asked.model_validate(fields)
    error = refusal(found.value, Asked)
    return error.message, error.field


def test_a_value_of_none_of_the_types_of_a_field_is_told_all_of_them() -> None:
    assert error_of(at=Decimal("1.5")) == ("at is 1.5, but must be a whole number, text or an object", "at")
    assert error_of(at=1.5) == ("at is 1.5, but must be a whole number, text or an object", "at")


def test_an_object_is_told_what_is_wrong_in_it_even_if_the_field_may_be_something_else() -> None:
    assert error_of(at={}) == ("at.of is missing; this operation requires it", "at.of")
    assert error_of(at={"off": 1}) == ("at.off is not a known field; did you mean 'of'?", "at.off")
    assert error_of(at={"of": 1}) == ("at.of is 1, but must be text", "at.of")
    assert error_of(places=[{"of": 1}]) == ("places[0].of is 1, but must be text", "places[0].of")


def test_no_error_shows_a_regular_expression_or_the_words_of_the_library() -> None:
    assert error_of(window="at night") == (
        'window is "at night", but must be hours such as 01:00-05:30 Europe/Zurich, without a zone for UTC',
        "window",
    )
    assert error_of(key="") == ('key is "", but must be at least 1 character long', "key")
    assert error_of(mark="||") == ('mark is "||", but must be at most 1 character long', "mark")
    assert error_of(percent=0.0) == ("percent is 0.0, but must be more than 0", "percent")
    assert error_of(percent="many") == ('percent is "many", but must be a number', "percent")
