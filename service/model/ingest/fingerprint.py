"""A digest of the rules by which a file is read."""

import hashlib
import json

from service.model.ingest.dataset import Dataset

_HALF = 32
# They say which rows are rejected, or nothing at all, and do not change the values of the others.
_NO_VALUES = ("name", "description", "filters")


def fingerprint_of(dataset: Dataset | None) -> str:
    """Of all rules. Its first half is of those that are no filters."""
    stored = dataset.stored() if dataset else {}
    values = {name: value for name, value in stored.items() if name not in _NO_VALUES}
    return _digest(values) + _digest(stored)


def converts_alike(one: str, other: str) -> bool:
    """Whether the rules of two fingerprints differ at most in their filters."""
    return one[:_HALF] == other[:_HALF]


def _digest(rules: object) -> str:
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:_HALF]
