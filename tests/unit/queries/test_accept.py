"""Which form of an answer an Accept header asks for."""

import pytest

from service.errors import InvalidRequest
from service.queries.streaming.accept import accepted_format

ARROW = "application/vnd.apache.arrow.stream"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("application/json", "json"),
        ("application/*", "json"),
        ("application/json, text/plain, */*", "json"),
        ("text/csv", "csv"),
        ("TEXT/CSV", "csv"),
        ("text/*", "csv"),
        ("text/csv; charset=utf-8; header=present", "csv"),
        (ARROW, "arrow"),
        ("text/html, text/csv;q=0.5", "csv"),
        # A form that is named wins over one that is only not excluded.
        ("text/csv, */*", "csv"),
        (f"{ARROW}, */*", "arrow"),
        # Of equals JSON.
        ("application/json, text/csv", "json"),
        ("text/csv, application/json", "json"),
        # Weights decide.
        ("application/json;q=0.9, text/csv", "csv"),
        ("application/json;q=0.1, text/csv;q=0.2", "csv"),
        (f"text/csv;q=0.5, {ARROW};q=0.7, */*;q=0.1", "arrow"),
        ("application/json;q=0, */*", "arrow"),
        (f"application/json;q=0, {ARROW};q=0, */*", "csv"),
        ("text/csv;q=0, */*", "json"),
        # What is no weight counts as none given.
        ("text/csv;q=much", "csv"),
        ("text/csv;q=7", "csv"),
        ("text/csv;q=nan", "csv"),
        (",,text/csv,", "csv"),
    ],
)
def test_the_form_that_is_wanted_most_is_given(accept: str, form: str) -> None:
    assert accepted_format(accept) == form


@pytest.mark.parametrize(
    "accept", ["text/html", "image/*, text/plain", "text/csv;q=0", "*/*;q=0", "application/xml;q=1"]
)
def test_what_accepts_none_of_the_forms_is_refused_with_their_names(accept: str) -> None:
    with pytest.raises(InvalidRequest, match="text/csv") as refused:
        accepted_format(accept)
    assert refused.value.field == "Accept"
    assert ARROW in refused.value.message
