"""What the measurements compute, count and write, without a service to measure."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import report
from bench.clients import LoadResult, compare
from bench.flood import NO_REASON, Flood
from bench.flood import Plan as FloodPlan
from bench.load import FIRST_ID, Load, Plan, Seen, parse, request_template
from bench.measures import FIRN, Claim, Line, ratio
from bench.stats import median, percentile


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([5], 0.99, 5), ([1, 3], 0.5, 2), ([3, 1, 2], 0.5, 2), ([*range(101)], 0.95, 95), ([4, 1], 0, 1), ([4, 1], 1, 4)],
)
def test_a_percentile_lies_where_its_share_says(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_within_the_values_and_never_falls(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert min(values) <= found * (1 + 1e-9)
    assert found <= max(values) * (1 + 1e-9)
    assert found <= percentile(values, 1) * (1 + 1e-9)
    assert percentile(values, 0) == min(values)


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1], 1.1), ([1], -0.1)])
def test_what_has_no_percentile_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(ValueError, match=r"nothing|share"):
        percentile(values, share)


def test_a_ratio_is_of_medians_and_missing_where_one_was_not_measured() -> None:
    ours, theirs = Line("x", FIRN, "ms", [10, 20, 90]), Line("x", "Peer", "ms", [4, 5, 6])
    assert ratio(ours, theirs) == 4
    assert ratio(ours, Line("x", "Peer", "ms", [])) is None
    assert median([1, 2, 3, 4]) == 2.5


def test_p95_is_the_slow_end_of_times_and_of_rates() -> None:
    values = [*range(101)]
    assert (Line("x", FIRN, "ms", values).p95, Line("x", FIRN, "rows/s", values).p95) == (95, 5)
    assert Line("x", FIRN, "ms", []).p95 is None


@pytest.mark.parametrize(
    ("measured", "at", "met"),
    [(3.0, "most", True), (3.01, "most", False), (2.99, "least", False), (3.0, "least", True), (None, "most", None)],
)
def test_a_claim_is_met_at_its_target_and_unknown_where_nothing_was_measured(
    measured: float | None, at: Any, met: bool | None
) -> None:
    assert Claim("c", measured, at, 3).met is met


def section(title: str, *lines: Line, claims: tuple[Claim, ...] = ()) -> dict[str, Any]:
    result = {"title": title, "at": "now", "commit": "abc", "seconds": 1}
    return {**result, "lines": [line.as_json() for line in lines], "claims": [claim.as_json() for claim in claims]}


def test_a_part_that_runs_again_replaces_only_its_own_section(tmp_path: Path) -> None:
    for number, title in ((2, "two"), (1, "one"), (2, "two again")):
        report.write(tmp_path, report.merged(report.read(tmp_path), number, section(title)))
    parts = report.read(tmp_path)["parts"]
    assert {number: part["title"] for number, part in parts.items()} == {"1": "one", "2": "two again"}
    assert list(parts) == ["1", "2"]


def test_the_table_has_a_row_for_each_line_and_compares_with_ours_of_the_same_kind() -> None:
    lines = [
        Line("write", FIRN, "ms", [50, 60, 70]),
        Line("write", "Peer | one", "ms", [20, 30, 40], "note"),
        Line("read", "Peer | one", "ms", []),
    ]
    text = report.markdown({"parts": {"1": section("one", *lines)}})
    assert "| 1 | write | Firn | 60.0 ms | 69.0 ms | 3 |  |  |" in text
    assert r"| 1 | write | Peer \| one | 30.0 ms | 39.0 ms | 3 | 2.00 | note |" in text
    assert r"| 1 | read | Peer \| one | – | – | 0 |  |  |" in text


def test_what_must_be_shown_has_a_section_of_its_own_that_hides_no_failure() -> None:
    claims = (Claim("good", 2, "most", 3), Claim("bad", 2, "least", 3), Claim("gone", None, "most", 3))
    text = report.markdown({"parts": {"1": section("one", claims=claims)}})
    assert "| good | at most 3 | 2 | yes |" in text
    assert "| bad | at least 3 | 2 | **no** |" in text
    assert "| gone | at most 3 | – | not measured |" in text


def test_a_part_that_failed_says_so_in_the_table() -> None:
    text = report.markdown({"parts": {"6": section("bulk") | {"error": "it broke"}}})
    assert "| 6 | bulk | | | | | | did not finish: it broke |" in text


def result(acknowledged: set[int], unknown: set[int]) -> LoadResult:
    return LoadResult([1.0], {"200": len(acknowledged)}, frozenset(acknowledged), frozenset(unknown), "", 1.0, 0.1)


def test_lost_duplicate_and_unexpected_rows_are_counted_and_unknown_ones_may_be_there_once() -> None:
    assert compare(result({1, 2, 3}, {9}), [1, 2, 3, 9]).__dict__ == {"lost": 0, "doubled": 0, "strange": 0}
    assert compare(result({1, 2, 3}, {9}), [1, 1, 1, 9, 9, 7]).__dict__ == {"lost": 2, "doubled": 3, "strange": 1}


@pytest.mark.parametrize("rows", [1, 3])
def test_a_request_is_as_long_as_it_says_and_holds_its_records(rows: int) -> None:
    template = request_template(Plan(1, "t", "x", 1, rows=rows))
    head, _, body = (template % {b"id": FIRST_ID + 7}).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    first = FIRST_ID + 7 if rows == 1 else FIRST_ID
    assert [record["id"] for record in json.loads(body)["records"]] == [first + n for n in range(rows)]


def test_a_response_is_read_once_it_is_complete_and_not_before() -> None:
    whole = b"HTTP/1.1 429 Too Many\r\ncontent-type: x\r\nContent-Length: 4\r\nx: y\r\n\r\nbody"
    assert [parse(whole[:n]) for n in range(len(whole))] == [None] * len(whole)
    assert parse(whole) == (429, b"body")


def loaded(plan: Callable[[int], Plan], status: Callable[[int], int]) -> tuple[Seen, list[int]]:
    """A run against a server that gives each id this status; what the clients saw, and the ids that the server got."""
    came: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            while (line := await reader.readline()) != b"\r\n":
                head += line
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            [record] = json.loads(await reader.readexactly(length))["records"]
            came.append(record["id"] - FIRST_ID)
            code = status(came[-1])
            if not code:
                break
            writer.write(f"HTTP/1.1 {code} X\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        writer.close()

    async def run() -> Seen:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await asyncio.wait_for(Load(plan(server.sockets[0].getsockname()[1])).run(), 20)

    return asyncio.run(run()), came


def test_every_request_is_sent_once_and_every_response_counted() -> None:
    seen, came = loaded(lambda port: Plan(port, "t", "x", 4, requests=50), lambda n: {7: 429, 9: 503}.get(n, 200))
    assert sorted(came) == list(range(50))
    assert dict(seen.statuses) == {200: 48, 429: 1, 503: 1}
    assert (seen.refused, seen.unknown) == ([FIRST_ID + 7], [FIRST_ID + 9])
    assert len(seen.latencies_ms) == 48


def test_a_connection_that_ends_leaves_its_request_unknown_and_the_others_at_work() -> None:
    seen, came = loaded(lambda port: Plan(port, "t", "x", 3, requests=30), lambda n: 0 if n == 5 else 200)
    assert (sorted(came), seen.unknown) == (list(range(30)), [FIRST_ID + 5])
    assert dict(seen.statuses) == {200: 29, 0: 1}


def test_a_run_ends_after_its_seconds() -> None:
    seen, came = loaded(lambda port: Plan(port, "t", "x", 2, seconds=0.2), lambda _: 200)
    assert 0 < seen.last_response - seen.started < 2
    assert len(came) == len(seen.latencies_ms) > 2


def test_the_comparison_has_every_figure_that_other_tools_have_also_if_firn_loses() -> None:
    lines = [
        Line("rows/s, 1 client", FIRN, "rows/s", [10]),
        Line("rows/s, 8 clients", FIRN, "rows/s", [90]),
        Line("rows/s, 8 clients", f"{FIRN}, group commit off", "rows/s", [900]),
        Line("rows/s, 1 client", "PyIceberg append", "rows/s", [20]),
        Line("rows/s, 8 clients", "PyIceberg append", "rows/s", [5]),
        Line("rows/s, 1 client", "DuckLake, rows in its catalog", "rows/s", [30]),
        Line("rows/s, 1 client", "DuckLake, a file each", "rows/s", [40]),
        Line("start", FIRN, "s", [1]),
    ]
    results = {"parts": {"2": section("many", *lines) | {"at": "2026-01-01 10:00 UTC"}}}
    results |= {"machine": {"cores": "2 of 2", "versions": "x 1"}}
    assert [row for row in report.comparison(results).splitlines() if row.startswith("| WRITE")] == [
        "| WRITE of 1 row: rows/s, 1 client | 10.0 rows/s | 20.0 rows/s | **40.0 rows/s** | – |",
        "| WRITE of 1 row: rows/s, 8 clients | **90.0 rows/s** | 20.0 rows/s | 40.0 rows/s | – |",
    ]
    assert "start" not in report.comparison(results)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"error": {"code": "TOO_MANY_REQUESTS", "message": "try again"}}', "429"),
        (b'{"error": {"code": "TOO_MANY_REQUESTS", "message": ""}}', f"429 {NO_REASON}"),
        (b"", f"429 {NO_REASON}"),
    ],
)
def test_a_flood_sends_every_kind_and_counts_the_answers_by_status(body: bytes, status: str) -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    async def run() -> dict[str, dict[str, int]]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await Flood(FloodPlan(port, "loud", 0.3, "SELECT 1", huge_bytes=1 << 20)).run()

    seen = asyncio.run(run())
    assert seen.keys() == {"query", "heavy", "write", "slow", "huge"}
    for statuses in seen.values():
        assert set(statuses) <= {status, "closed", "still open"}
        assert sum(statuses.values()) > 0
    assert status in seen["query"]
    assert any(b"chunked" in head for head in heads)
