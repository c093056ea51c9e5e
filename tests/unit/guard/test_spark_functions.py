"""Every function of the pinned Spark is either allowed or refused, on purpose, by its name and class."""

import json
from pathlib import Path

from service.guard.functions import FUNCTIONS, GENERATORS, REFUSED

KNOWN: dict[str, str] = json.loads(Path(__file__).with_name("spark_functions.json").read_text())
NAMED = {name for name in KNOWN if name.replace("_", "").isalnum()}


def test_every_function_is_allowed_or_refused_and_none_is_both() -> None:
    assert NAMED - FUNCTIONS == REFUSED
    assert not FUNCTIONS & REFUSED


def test_no_list_has_a_function_that_spark_does_not_have() -> None:
    assert (FUNCTIONS | REFUSED | GENERATORS) - KNOWN.keys() == set()
