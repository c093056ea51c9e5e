"""Cleaning against a plain model of it in Python: which texts are values of a type, and which values."""

import csv
import io
import itertools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.harness import Firn
from tests.support.ingesting import IngestedTable
from tests.support.marks import thorough_except

_SIGNED = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?:(:\d\d)(?:\.(\d{1,6})0*)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)


def whole(bits: int) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = int(text) if _SIGNED.fullmatch(text) else None
        return value if value is not None and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None

    return read


def double(text: str) -> Any:
    value = float(text) if _DECIMAL.fullmatch(text) else None
    return value if value is not None and abs(value) != float("inf") else None


def decimal(text: str) -> Any:
    if not _DECIMAL.fullmatch(text):
        return None
    value = Decimal(text)
    exact = value.quantize(Decimal("0.01")) if abs(value) < 10**8 else None
    return f"{exact + 0:f}" if exact is not None and exact == value else None


def day(text: str) -> Any:
    try:
        return str(date.fromisoformat(text)) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else None
    except ValueError:
        return None


def timestamp(text: str) -> Any:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    try:
        date_, time_, seconds, fraction, zone = found.groups()
        made = datetime.fromisoformat(f"{date_}T{time_ or '00:00'}{seconds or ':00'}")
        made += timedelta(microseconds=int((fraction or "0").ljust(6, "0")))
        if zone and zone != "Z":
            sign = -1 if zone[0] == "-" else 1
            hours, minutes = int(zone[1:3]), int(zone[-2:])
            if hours > 18 or minutes > 59 or (hours == 18 and minutes):
                return None
            made -= sign * timedelta(hours=hours, minutes=minutes)
        return made.replace(tzinfo=UTC).isoformat().removesuffix("+00:00")
    except (ValueError, OverflowError):
        return None


TYPES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "i": ("INTEGER", whole(32)),
    "l": ("BIGINT", whole(64)),
    "d": ("DOUBLE", double),
    "m": ("DECIMAL(10,2)", decimal),
    "at": ("DATE", day),
    "t": ("TIMESTAMP", timestamp),
}
_digits = st.text("0123456789", max_size=12)
TEXTS = st.one_of(
    st.builds("{}{}".format, st.sampled_from(["", "+", "-", "--"]), _digits),
    st.builds("{}{}.{}".format, st.sampled_from(["", "+", "-"]), _digits, st.text("05", max_size=5)),
    st.builds("{}e{}".format, st.integers(-99, 99), st.integers(-9, 12)),
    st.sampled_from(
        ["12abc", "1_000", "1,5", "NaN", "Infinity", "1d", "0x1p3", ".", "-", "true", "12 3", "1e", "1e999"]
    ),
    st.dates(date(1000, 1, 1)).map(str),
    st.sampled_from(["2024-1-5", "2024-02-30", "2024", "24-01-05", "2024-01-05x", "2024-01-5T", "20240105", "T10:00"]),
    st.builds(
        "{}{}{}{}".format,
        st.dates(date(1000, 1, 2), date(9999, 1, 1)).map(str),
        st.sampled_from(["T", " "]),
        st.sampled_from(["10:00", "23:59:59", "23:59:59.5", "00:00:00.123456", "00:00:00.1234567", "24:00:00", "1:00"]),
        st.sampled_from(["", "Z", "+02:00", "-0530", "+19:00"]),
    ),
)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.lists(st.lists(TEXTS, min_size=len(TYPES), max_size=len(TYPES)), min_size=100, max_size=150))
def test_a_text_is_the_value_that_the_model_says(
    firn: Firn, tenant: str, tmp_path: Path, texts: list[list[str]]
) -> None:
    _number = len(list(tmp_path.iterdir()))
    types = TYPES
    if _number % 2:  # files of many columns are compiled in another way
        types = {**TYPES, **{f"{name}2": kind for name, kind in TYPES.items()}}
        texts = [row * 2 for row in texts]
    columns = [{"name": "id", "type": "INTEGER"}, *({"name": n, "type": kind} for n, (kind, _) in types.items())]
    table = IngestedTable(firn, tenant, tmp_path, f"m{_number}", {"columns": columns, "on_error": "null"})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["id", *types])
    writer.writerows([n, *(f" {text} " if n % 2 else text for text in row)] for n, row in enumerate(texts))
    table.ingest("2024-01-01", out.getvalue(), f"m{_number}.csv")
    found = {row.pop("id"): row for row in table.rows()}
    for row in found.values():
        row |= {name: None if row[name] is None else float(row[name]) for name in ("d", "d2") if name in row}
    expected = {
        n: {name: read(text) for (name, (_, read)), text in zip(types.items(), row, strict=True)}
        for n, row in enumerate(texts)
    }
    wrong = [
        (text, name, found[n][name], row[name])
        for n, row in expected.items()
        for text, name in zip(texts[n], types, strict=True)
        if found[n][name] != row[name]
    ]
    assert not wrong, f"{len(wrong)} differ, such as {wrong[:3]}"


def test_a_time_is_refused_whichever_of_its_characters_is_wrong(firn: Firn, tenant: str, tmp_path: Path) -> None:
    right = ["2024-02-28", "2024-02-28 12:30:00", "2024-02-28T12:30:00.5", "2024-02-28 12:30:00.123456"]
    wrong = ["", "0", "9", "A", "e", "Z", "+", "-", ":", ".", "T", " ", "\t", "+1", "1Z", ".1", "٣"]
    places = [(text, i, i + length) for text in right for i in range(len(text) + 1) for length in range(3)]
    texts = {text[:i] + other + text[j:] for text, i, j in places for other in wrong}
    given = sorted({text.strip(" ") for text in texts} - {""})
    columns = [{"name": "text", "type": "VARCHAR"}, {"name": "at", "type": "DATE", "source": "text"}]
    columns.append({"name": "t", "type": "TIMESTAMP", "source": "text"})
    table = IngestedTable(firn, tenant, tmp_path, "times", {"columns": columns, "on_error": "null"})
    table.ingest("2024-01-01", "\n".join(["text", *given]))
    found = {row["text"]: (row["at"], row["t"]) for row in table.rows(limit=len(given))}
    differ = {text: found.get(text) for text in given if found.get(text) != (day(text), timestamp(text))}
    assert not differ, f"{len(differ)} of {len(given)} differ, such as {list(differ.items())[:5]}"
    assert len([1 for at, t in found.values() if t is not None and at is None]) > 20


@pytest.mark.parametrize("columns", thorough_except([["one", "other"]], [["one"], ["one", "other"]]), ids=str)
def test_a_record_that_is_split_at_its_delimiters_has_the_fields_that_a_parser_finds(
    firn: Firn, tenant: str, tmp_path: Path, columns: list[str]
) -> None:
    letters = [('a|" \\', n) for n in range(1, 6)] + [('a|"', n) for n in (6, 7)]
    short = ["".join(found) for alphabet, n in letters for found in itertools.product(alphabet, repeat=n)]
    # With an odd number of quotes a line may go on in the next, and the file is read in another way.
    lines = [line for line in short if line.count('"') % 2 == 0 and line.count("|") in (len(columns) - 1, len(columns))]
    dataset = {"csv": {"delimiter": "|", "header": False}, "on_error": "quarantine"}
    dataset |= {"columns": [{"name": name, "type": "VARCHAR"} for name in columns]}

    def read(name: str, *ends: str) -> tuple[list[Any], list[Any]]:
        table = IngestedTable(firn, tenant, tmp_path, name, dataset)
        table.ingest("2024-01-01", "\n".join([*lines, *ends]), f"{name}.csv")
        good = [tuple(row[name] for name in columns) for row in table.rows(limit=len(lines))]
        rejects = firn.rows(tenant, f"{name}__quarantine", sort=["line"], limit=len(lines))
        return sorted(good, key=repr), [(row["line"], row["raw"], row["rule"]) for row in rejects]

    good, bad = read("simple")
    assert len(good) > 100
    assert len(bad) > 100
    # A file with a NUL character is read by the parser only. This record is rejected.
    parsed, rejects = read("parsed", "a|a|a|\0")
    assert (good, bad) == (parsed, rejects[:-1])
