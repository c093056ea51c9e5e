"""Hostile SQL is refused before it runs or ends alone, and ordinary SQL runs: every text of the corpus."""

import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from service.engine.session import jvm
from tests.harness import Firn
from tests.support.sql_corpus import SqlText, corpus, make_tables

CORPUS = corpus()
HOSTILE = [one for one in CORPUS if one.mechanism]
ORDINARY = [one for one in CORPUS if not one.mechanism]
MECHANISMS = sorted({one.mechanism for one in HOSTILE if one.mechanism})
# One each of these is tried by `make test`, too.
QUICK = {
    *("sequence", "repeat", "format_string", "lambda over lambda", "cross join", "WITH that doubles", "grouping sets"),
    *("approximations that are too exact", "regular expressions", "LIKE with many wildcards", "time windows"),
    *("nested too deeply", "aggregate that grows", "numbers out of range", "dates and times out of range"),
}
TIMEOUT_MS = 5_000
# A path, a Java class, a stack.
LEAKS = re.compile(r"(?:/[\w.-]+){3,}|\b(?:org|java|scala|sun)\.\w+\.\w+|\bat \w+\.\w+\(|Exception\b")


@dataclass(frozen=True)
class Tables:
    """The tables of the corpus in a tenant of their own."""

    firn: Firn
    tenant: str


@pytest.fixture(scope="module")
def small(firn: Firn) -> Tables:
    make_tables(firn, "tenant-corpus-small", 1_000)
    return Tables(firn, "tenant-corpus-small")


@pytest.fixture(scope="module")
def tables(firn: Firn) -> Tables:
    make_tables(firn, "tenant-corpus", 100_000)
    return Tables(firn, "tenant-corpus")


def test_the_corpus_has_many_texts_over_many_mechanisms() -> None:
    assert len(HOSTILE) >= 150
    assert len(MECHANISMS) >= 40
    assert len(ORDINARY) >= 60
    assert {one.ends for one in HOSTILE} == {"refused", "failed", "alone"}


def asked(tables: Tables, one: SqlText) -> tuple[int, dict[str, Any], float]:
    """The status and the body of the response, and the seconds that it took."""
    started = time.monotonic()
    request = {
        "operation": "QUERY",
        "tenant_id": tables.tenant,
        "sql": one.text,
        "timeout_ms": TIMEOUT_MS,
        "limit": 10_000,
    }
    response = tables.firn.send(request)
    return response.status_code, tables.firn.parsed(response), time.monotonic() - started


def fails_with_a_reason(tables: Tables, one: SqlText) -> str | None:
    """What is wrong with the response to a hostile text, if anything."""
    status, body, seconds = asked(tables, one)
    error = body.get("error", {})
    code, message = error.get("code"), str(error.get("message"))
    allowed = {"QUERY_TOO_EXPENSIVE", "DEADLINE_EXCEEDED"} if one.ends == "alone" else {"QUERY_TOO_EXPENSIVE"}
    if one.ends != "alone":
        allowed |= {"INVALID_QUERY", "INVALID_FILTER"} if one.ends == "failed" else {"INVALID_QUERY"}
    if code not in allowed or (status >= 500 and code != "DEADLINE_EXCEEDED"):
        return f"{status} {code}: {message[:200]}"
    if LEAKS.search(message) or len(message) > 1_000:
        return f"it shows too much: {message[:300]}"
    return f"it took {seconds:.1f} s" if seconds > 10 * TIMEOUT_MS / 1000 else None


def jobs(tables: Tables) -> int:
    """How many Spark jobs have started so far."""
    return int(tables.firn.app.engine.run(lambda s: s._jsparkSession.sparkContext().dagScheduler().numTotalJobs()))


@pytest.mark.parametrize("one", [one for one in ORDINARY if len(one.text) < 110][:10], ids=str)
def test_ordinary_sql_runs(small: Tables, one: SqlText) -> None:
    status, body, _ = asked(small, one)
    assert status == 200, body


@pytest.mark.thorough
@pytest.mark.parametrize("one", ORDINARY, ids=str)
def test_all_ordinary_sql_runs(tables: Tables, one: SqlText) -> None:
    status, body, _ = asked(tables, one)
    assert status == 200, body


def refused(mechanisms: Iterable[str], most: int) -> list[SqlText]:
    of = {m: [one for one in HOSTILE if one.mechanism == m and one.ends == "refused"] for m in sorted(mechanisms)}
    return [one for texts in of.values() for one in texts[:most]]


def test_hostile_sql_is_refused_before_a_job_starts(small: Tables) -> None:
    before = jobs(small)
    wrong = [(str(one), fails_with_a_reason(small, one)) for one in refused(QUICK, 1)]
    assert [(text, problem) for text, problem in wrong if problem] == []
    assert jobs(small) == before


@pytest.mark.thorough
def test_all_hostile_sql_is_refused_before_a_job_starts(tables: Tables) -> None:
    before = jobs(tables)
    wrong = [(str(one), fails_with_a_reason(tables, one)) for one in refused(MECHANISMS, 1000)]
    assert [(text, problem) for text, problem in wrong if problem] == []
    assert jobs(tables) == before


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_others_go_on_beside_hostile_sql(tables: Tables, mechanism: str) -> None:
    """Each text fails with a reason; a WRITE and a QUERY beside it succeed, in the process that there was before."""
    process = jvm.process()
    assert process is not None
    write = {"operation": "WRITE", "tenant_id": tables.tenant, "table": "u", "records": [{"id": 1000, "name": "x"}]}
    read = {"operation": "QUERY", "tenant_id": tables.tenant, "table": "u", "limit": 1}
    wrong = []
    with ThreadPoolExecutor(1) as pool:
        for one in (one for one in HOSTILE if one.mechanism == mechanism):
            hostile = pool.submit(fails_with_a_reason, tables, one)
            tables.firn.ok(write)
            tables.firn.ok(read)
            wrong.append((str(one), hostile.result()))
    assert [(text, problem) for text, problem in wrong if problem] == []
    assert jvm.process() is process
    assert process.poll() is None
