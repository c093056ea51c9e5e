"""What `/metrics` tells of a service at work is what was asked of it and what it answered."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness import Firn, wait_until

SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "name": {"type": "string"}}}
Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Watched:
    """A table, and what the figures have become since it was made. The service has done other things before."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        self.firn = firn
        self.address = {"tenant_id": tenant, "table": "t"}
        self._before = scrape(firn)
        self.ask("CREATE_TABLE", schema=SCHEMA)

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": operation, **self.address, **fields})

    def write(self, *ids: int) -> dict[str, Any]:
        return self.ask("WRITE", records=[{"id": i, "name": "x"} for i in ids])

    def more(self, name: str, **labels: str) -> float:
        """By how much a counter has grown."""
        series = name, frozenset(labels.items())
        return scrape(self.firn)[series] - self._before.get(series, 0)

    def now(self, name: str, **labels: str) -> float | None:
        """What a gauge of the table says."""
        tenant = self.address["tenant_id"]
        at = {"tenant": tenant, "namespace": "default", "table": "t", **labels}
        return scrape(self.firn).get((name, frozenset(at.items())))


def scrape(firn: Firn) -> Figures:
    response = firn.client.get("/metrics")
    assert response.status_code == 200
    families = text_string_to_metric_families(response.text)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


@pytest.fixture
def watched(firn: Firn, tenant: str) -> Watched:
    return Watched(firn, tenant)


def test_a_service_that_is_ready_says_so(firn: Firn) -> None:
    result = scrape(firn)
    assert result["firn_ready", frozenset()] == result["firn_engine_up", frozenset()] == 1
    assert result["firn_engine_starts_total", frozenset()] >= 1
    sessions = [result["firn_spark_sessions", frozenset({("state", state)})] for state in ("idle", "busy")]
    assert sum(sessions) == firn.app.settings.spark.sessions


def test_writes_are_counted_with_the_commits_they_shared(watched: Watched) -> None:
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda n: watched.write(n, n + 100), range(24)))
    snapshots = {answer["metadata"]["snapshot_id"] for answer in answers}
    assert watched.more("firn_requests_total", operation="WRITE", code="ok") == 24
    assert watched.more("firn_request_seconds_count", operation="WRITE") == 24
    assert watched.more("firn_batch_requests_sum") == 24
    assert watched.more("firn_batch_records_sum") == 48
    assert watched.more("firn_batch_requests_count") == len(snapshots)
    assert watched.more("firn_commit_seconds_count", operation="WRITE") == len(snapshots)
    assert scrape(watched.firn)["firn_write_queue_requests", frozenset()] == 0


def test_queries_edits_and_refusals_are_told_apart(watched: Watched) -> None:
    watched.write(1, 2)
    watched.ask("QUERY", filter={"id": 1})
    watched.ask("UPDATE", updates={"name": "y"}, filter={"id": 1})
    watched.ask("DELETE", filter={"id": 7})  # there is none: nothing is committed
    watched.firn.fail({"operation": "QUERY", **watched.address, "filter": {"idd": 1}}, "UNKNOWN_FIELD")
    watched.firn.fail({"operation": "QURY", **watched.address}, "UNKNOWN_OPERATION")
    assert watched.more("firn_requests_total", operation="QUERY", code="ok") == 1
    assert watched.more("firn_requests_total", operation="QUERY", code="UNKNOWN_FIELD") == 1
    assert watched.more("firn_requests_total", operation="NONE", code="UNKNOWN_OPERATION") == 1
    assert watched.more("firn_request_seconds_count", operation="QUERY") == 2
    assert watched.more("firn_query_seconds_count") == 1
    assert watched.more("firn_commit_seconds_count", operation="UPDATE") == 1
    assert watched.more("firn_requests_total", operation="DELETE", code="ok") == 1


def test_a_streamed_answer_is_over_when_it_was_read(watched: Watched) -> None:
    watched.write(*range(10))
    request = {"operation": "QUERY", **watched.address}
    response = watched.firn.client.post("/database", json=request, headers={"Accept": "text/csv"})
    assert len(response.text.splitlines()) == 11
    wait_until(lambda: watched.more("firn_streams_ended_total", outcome="complete") == 1, 60, every=0.01)
    assert watched.more("firn_query_seconds_count") == 1
    assert scrape(watched.firn)["firn_streams", frozenset()] == 0


@pytest.mark.thorough
def test_small_files_are_told_until_a_compaction_has_merged_them(watched: Watched) -> None:
    answers = [watched.write(n) for n in range(5)]
    assert [a["compaction_recommended"] for a in answers] == [False] * 4 + [True]
    assert watched.now("firn_table_small_files") == answers[4]["small_files_count"] == 5
    assert watched.now("firn_table_compaction_recommended") == 1
    assert watched.more("firn_recommendations_total") == watched.more("firn_small_file_checks_total") == 1
    stats = watched.ask("COMPACT")["stats"]
    assert not watched.ask("COMPACT")["compacted"]
    assert (stats["files_before"], stats["files_after"]) == (5, 1)
    assert watched.now("firn_table_small_files") == stats["small_files_remaining"] == 1
    assert watched.now("firn_table_compaction_recommended") == 0
    for when in ("before", "after"):
        assert watched.now("firn_table_compaction_files", when=when) == stats[f"files_{when}"]
        assert watched.now("firn_table_compaction_bytes", when=when) == stats[f"bytes_{when}"]
        assert watched.more("firn_compaction_files_total", when=when) == stats[f"files_{when}"]
        assert watched.more("firn_compaction_bytes_total", when=when) == stats[f"bytes_{when}"]
    assert watched.more("firn_compaction_merged_files_total") == stats["files_compacted"]
    for outcome in ("done", "nothing"):
        assert watched.more("firn_compactions_total", outcome=outcome) == 1
        assert watched.now("firn_table_compactions_total", outcome=outcome) == 1
    assert watched.more("firn_compactions_total", outcome="failed") == 0
    assert watched.more("firn_compaction_seconds_count") == 1


@pytest.mark.thorough
def test_a_bulk_load_is_a_request_and_in_the_background_a_job(watched: Watched) -> None:
    path = "/tables/{tenant_id}/default/{table}/records".format(**watched.address)
    for query, status in (("", 200), ("?async=true", 202), ("?asinc=true", 400)):
        kind = {"Content-Type": "application/x-ndjson"}
        response = watched.firn.client.post(path + query, content=b'{"id": 1}\n{"id": 2}\n', headers=kind)
        assert response.status_code == status, response.text
    for state in ("running", "done"):
        labels = {"kind": "BULK", "state": state}
        wait_until(lambda labels=labels: watched.more("firn_job_states_total", **labels) == 1, 60)  # type: ignore[misc]
    assert watched.more("firn_requests_total", operation="BULK", code="ok") == 2
    assert watched.more("firn_requests_total", operation="BULK", code="INVALID_REQUEST") == 1
    wait_until(lambda: scrape(watched.firn)["firn_bulk_loads", frozenset()] == 0, 60)
    assert watched.more("firn_commit_seconds_count", operation="WRITE") == 2


def test_a_table_that_is_dropped_leaves_no_series(watched: Watched) -> None:
    for n in range(5):
        watched.write(n)
    assert watched.now("firn_table_small_files") == 5
    watched.ask("DROP_TABLE", confirm=True)
    assert watched.now("firn_table_small_files") is None
