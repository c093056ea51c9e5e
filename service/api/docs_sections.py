"""The sections of the page at GET /docs about what is not one operation: filters, streams, bulk loads, jobs, events."""

import json
from dataclasses import dataclass
from typing import Any

from service.api.docs_requests import TENANT, Shown, pretty
from service.operations.examples import create_table, response, write

ADDRESS = {"tenant_id": TENANT, "namespace": "depot", "table": "parcels"}
RECORDS = "/tables/{tenant_id}/{namespace}/{table}/records".format(**ADDRESS)
INVOCATIONS = "/2015-03-31/functions/function/invocations"
_CREATE, _WRITE = "filters-1-first-1", "filters-1-first-2"
_SCHEMA = {"id": "long", "city": "string", "weight": "decimal(6,2)"}
_ROWS: list[dict[str, Any]] = [
    {"id": 1, "city": "Bern", "weight": "2.50"},
    {"id": 2, "city": "Oslo", "weight": "0.90"},
    {"id": 3, "city": "Bern", "weight": None},
]


@dataclass(frozen=True)
class Section:
    """Text in which backticks mark code, requests, and the guides that say more."""

    id: str
    title: str
    text: str
    guides: tuple[str, ...]
    requests: tuple[Shown, ...]


def _query(number: int, title: str, filter_: Any, *rows: int, note: str = "") -> Shown:
    request = {"operation": "QUERY", **ADDRESS, "filter": filter_, "sort": "id"}
    answer = {"success": True, "data": [row for row in _ROWS if row["id"] in rows], "metadata": "<any>"}
    return Shown(f"filters-{number}", title, pretty(request), answer=answer, needs=[_CREATE, _WRITE], note=note)


def _event(number: int, title: str, event: dict[str, Any]) -> Shown:
    answer = {"statusCode": 200, "headers": "<any>", "body": "<any>"}
    return Shown(f"events-{number}", title, pretty(event), path=INVOCATIONS, answer=answer, needs=[_CREATE, _WRITE])


def sections() -> list[Section]:
    """In the order in which their requests can be sent."""
    return [_filters(), _streams(), _bulk(), _jobs(), _events()]


def _filters() -> Section:
    refused = {"success": False, "error": "<any>", "metadata": "<any>"}
    wrong = {"operation": "QUERY", **ADDRESS, "filter": {"wieght": {"gt": 1}}}
    return Section(
        "filters",
        "Filters",
        "`filter` selects rows in QUERY, UPDATE and DELETE, `partition_filter` selects partitions. There are two "
        "forms, a map and a list. `and`, `or` and `not` combine both, and an expression computes from the row.",
        ("reference/filters.md", "reference/expressions.md"),
        (
            Shown(_CREATE, "First: CREATE_TABLE", pretty(create_table(ADDRESS, _SCHEMA))),
            Shown(_WRITE, "First: WRITE", pretty(write(ADDRESS, *_ROWS)), needs=[_CREATE]),
            _query(1, "A map: columns with values or operators", {"city": "Bern", "weight": {"gt": 1}}, 1),
            _query(2, "A list of conditions", [{"field": "city", "operator": "in", "value": ["Oslo", "Rome"]}], 2),
            _query(3, "Combine filters", {"or": [{"weight": None}, {"not": {"city": "Bern"}}]}, 2, 3),
            _query(4, "An expression over the row", {"expression": "weight * 2 > 4"}, 1),
            Shown(
                "filters-5",
                "An error names the field, the problem and the way out",
                pretty(wrong),
                answer=refused,
                needs=[_CREATE, _WRITE],
                status=400,
                note="There is no such column: the response has the status 400 and the nearest name.",
            ),
        ),
    )


def _streams() -> Section:
    return Section(
        "streams",
        "Streams",
        "With the header `Accept`, a QUERY returns all of its rows as CSV or as an Arrow IPC stream, without a limit.",
        ("reference/queries.md",),
        (
            Shown(
                "streams-1",
                "Read rows as CSV",
                pretty({"operation": "QUERY", **ADDRESS, "sort": "id"}),
                headers={"Accept": "text/csv"},
                answer="id,city,weight\r\n1,Bern,2.50\r\n2,Oslo,0.90\r\n3,Bern,\r\n",
                needs=[_CREATE, _WRITE],
            ),
        ),
    )


def _bulk() -> Section:
    loaded = response(records_written=2, compaction_recommended="<any>")
    loaded["metadata"] |= {"batch": {"requests": 1, "records": 2}}
    return Section(
        "bulk",
        "Bulk loads",
        "`POST /tables/{tenant}/{namespace}/{table}/records` appends a body of any size in one commit: CSV, NDJSON, "
        "Parquet or an Arrow stream. With `mode=upsert` it updates the rows with the same key, and inserts the others. "
        "With `async=true` it runs as a job. To send a file: `--data-binary @orders.csv`.",
        ("how-to/load-files.md", "reference/bulk.md"),
        (
            Shown(
                "bulk-1",
                "Load CSV",
                "id,city,weight\n4,Rome,1.20\n5,Bern,\n",
                path=RECORDS,
                headers={"Content-Type": "text/csv", "Idempotency-Key": "parcels-4-and-5"},
                answer=loaded,
                needs=[_CREATE],
            ),
            Shown(
                "bulk-2",
                "Load NDJSON in the background",
                '{"id": 6, "city": "Oslo"}\n{"id": 7, "city": "Rome", "weight": 3}\n',
                path=f"{RECORDS}?async=true",
                headers={"Content-Type": "application/x-ndjson"},
                answer=response(snapshot=False, job_id="<any>", status_url="<any>"),
                needs=[_CREATE],
                keeps={"JOB_0": "job_id"},
            ),
        ),
    )


def _jobs() -> Section:
    job = {"success": True, "job": "<any>", "metadata": "<any>"}
    return Section(
        "jobs",
        "Jobs",
        "Long work that was sent with `async` continues as a job: `GET /jobs/{id}` shows its progress, and its "
        "result once it is done. `DELETE /jobs/{id}` cancels it; a job that has ended stays as it is.",
        ("reference/jobs.md",),
        (
            Shown("jobs-1", "Show a job", method="GET", path="/jobs/$JOB_0", answer=job, needs=[_CREATE, "bulk-2"]),
            Shown(
                "jobs-2",
                "Cancel a job",
                method="DELETE",
                path="/jobs/$JOB_0",
                answer=job,
                needs=[_CREATE, "bulk-2"],
            ),
        ),
    )


def _events() -> Section:
    listed = {"operation": "LIST_TABLES", "tenant_id": TENANT, "namespace": ADDRESS["namespace"]}
    return Section(
        "events",
        "Events",
        f"`POST {INVOCATIONS}` takes a request as the `body` of an API Gateway event (v1 or v2), or as the "
        "`detail` of a scheduled event of EventBridge. Its response has `statusCode`, `headers` and `body`.",
        ("how-to/run-as-a-function.md", "how-to/nightly-compaction.md"),
        (
            _event(
                1,
                "A request from API Gateway",
                {
                    "version": "2.0",
                    "rawPath": "/database",
                    "requestContext": {"http": {"method": "POST", "path": "/database"}},
                    "body": json.dumps(listed),
                },
            ),
            _event(
                2,
                "A scheduled event from EventBridge",
                {"source": "aws.events", "detail": {"operation": "COMPACT", **ADDRESS}},
            ),
        ),
    )
