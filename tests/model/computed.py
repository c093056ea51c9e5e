"""Expressions, and what each means of a row: written out by hand, as a reader of SQL would understand them."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from math import fmod
from typing import Any

Row = dict[str, Any]


def _upper_is_itself(row: Row) -> bool | None:
    return bool(row["name"].upper() == row["name"])


def _n_twice_beyond_id(row: Row) -> bool | None:
    return None if row["n"] is None else row["n"] * 2 > row["id"]


def _price_is_listed(row: Row) -> bool | None:
    return True if row["price"] == Decimal("9.50") else None


def _late_or_numbered(row: Row) -> bool | None:
    late = None if row["day"] is None else row["day"].isoformat() >= "2024-02-01"
    if late or row["n"] is not None:
        return True
    return late


CONDITIONS: dict[str, Callable[[Row], bool | None]] = {
    "upper(name) = name": _upper_is_itself,
    "CAST(n AS long) * 2 > id": _n_twice_beyond_id,
    "NOT (CAST(n AS long) * 2 > id)": lambda row: None if row["n"] is None else not _n_twice_beyond_id(row),
    "price IN (9.5, NULL)": _price_is_listed,
    "day >= '2024-02-01' OR n IS NOT NULL": _late_or_numbered,
    "month(day) = 2": lambda row: None if row["day"] is None else row["day"].month == 2,
    "coalesce(kind, '') || name LIKE 'x%'": lambda row: ((row["kind"] or "") + row["name"]).startswith("x"),
    "CASE WHEN n < 0 THEN name ELSE kind END = 'x'": lambda row: (
        row["name"] == "x"
        if row["n"] is not None and row["n"] < 0
        else (None if row["kind"] is None else row["kind"] == "x")
    ),
    "n = id OR NULL": lambda row: True if row["n"] is not None and row["n"] == row["id"] else None,
}
VALUES: dict[str, dict[str, Callable[[Row], Any]]] = {
    "name": {
        "upper(name)": lambda row: row["name"].upper(),
        "coalesce(kind, name)": lambda row: row["name"] if row["kind"] is None else row["kind"],
    },
    "kind": {
        "CASE WHEN n > 0 THEN 'x' WHEN n < 0 THEN kind END": lambda row: (
            None if row["n"] is None or row["n"] == 0 else ("x" if row["n"] > 0 else row["kind"])
        ),
        "nullif(kind, 'x')": lambda row: None if row["kind"] == "x" else row["kind"],
    },
    "n": {
        "coalesce(n, 0) % 7": lambda row: int(fmod(row["n"] or 0, 7)),
        "id": lambda row: row["id"],
    },
    "price": {
        "least(price, 5)": lambda row: min(Decimal("5.00") if row["price"] is None else row["price"], Decimal("5.00")),
        "price / 4": lambda row: None if row["price"] is None else _rounded(row["price"] / 4),
    },
    "day": {
        "date_add(day, 1)": lambda row: None if row["day"] is None else row["day"] + timedelta(days=1),
        "date_trunc('month', day)": lambda row: None if row["day"] is None else row["day"].replace(day=1),
    },
}
DERIVED: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "initial": (
        "upper(substr(name, 1, 1))",
        lambda row: None if row["name"] is None else row["name"][:1].upper(),
    ),
    "score": (
        "coalesce(n, 0) % 7 + id",
        lambda row: None if row["id"] is None else int(fmod(row["n"] or 0, 7)) + row["id"],
    ),
    "month": (
        "date_trunc('month', day)",
        lambda row: None if row["day"] is None else row["day"].replace(day=1),
    ),
}
"""Columns that a table may get, each with its expression."""


def _rounded(number: Decimal) -> Decimal:
    """To two digits, halves away from zero, as a column of decimals takes what is finer."""
    return number.quantize(Decimal("0.01"), "ROUND_HALF_UP")
