"""RECOMMEND: rank tables by what compacting them would gain."""

import base64
import hashlib
from typing import Literal

from pydantic import BaseModel, Field

from service.maintenance.advise.advice import Advice, Adviser, why
from service.model.names import TableName
from service.operations.examples import create_table, response, write
from service.operations.operation import Example, Result, omit_when_null, operation
from service.operations.paging import Page, Paged, ScopedRequest, limit_field
from service.settings.kinds import Mode

LETTERS = {"tenant_id": "acme", "namespace": "office", "table": "letters"}
SEARCHES = {"tenant_id": "acme", "namespace": "shop", "table": "searches"}
EXAMPLES = (
    Example(
        "See which tables to compact",
        {"operation": "RECOMMEND", "tenant_id": "acme", "scope": "tenant", "limit": 10},
        response(
            snapshot=False,
            recommendations=[
                {
                    "namespace": "shop",
                    "table": "searches",
                    "recommended": True,
                    "mode": "recommend",
                    "online": True,
                    "small_files": 3,
                    "files": 3,
                    "bytes": "<any>",
                    "files_after": 1,
                    "queries_per_hour": "<any>",
                    "planning_ms": "<any>",
                    "files_opened": "<any>",
                    "predicted_query_saving_ms": "<any>",
                    "predicted_saving_ms_per_hour": "<any>",
                    "predicted_cost_ms": "<any>",
                    "worth": "<any>",
                    "reason": "<any>",
                },
                {
                    "namespace": "office",
                    "table": "letters",
                    "recommended": False,
                    "mode": "recommend",
                    "online": True,
                    "small_files": 0,
                    "files": 0,
                    "bytes": 0,
                    "files_after": 0,
                    "queries_per_hour": "<any>",
                    "predicted_query_saving_ms": "<any>",
                    "predicted_saving_ms_per_hour": "<any>",
                    "predicted_cost_ms": 0,
                    "worth": "<any>",
                    "reason": "there are no small files",
                },
            ],
        ),
        given=(
            create_table(LETTERS, {"text": "string"}),
            create_table(SEARCHES, {"words": "string"}),
            *(write(SEARCHES, {"words": words}) for words in ("snow", "old snow", "ice")),
            {"operation": "QUERY", **SEARCHES, "sort": ["words"]},
        ),
    ),
)


class Recommend(Paged, ScopedRequest):
    operation: Literal["RECOMMEND"]
    limit: int = limit_field(100, 10_000)


class Recommendation(BaseModel):
    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name")
    recommended: bool = Field(description="whether to compact it: it has enough small files, is online and not `off`")
    mode: Mode = Field(description="the table's compaction mode; `off` if compaction is disabled")
    online: bool = Field(
        description="false if SET_ONLINE or the property `online` excluded it from scheduled maintenance"
    )
    small_files: int = Field(description="data files that count as small")
    files: int = Field(description="data files")
    bytes: int = Field(description="the size of the data files")
    files_after: int = Field(description="data files after a compaction")
    queries_per_hour: float = Field(description="the recent rate, as counted by this instance since it started")
    planning_ms: float | None = omit_when_null(
        "median planning time of queries; absent if none since the last compaction"
    )
    files_opened: float | None = omit_when_null("data files that a query opens on average; absent likewise")
    predicted_query_saving_ms: float = Field(description="the time that a query would save")
    predicted_saving_ms_per_hour: float = Field(description="the time that all queries of an hour would save")
    predicted_cost_ms: int = Field(description="how long a compaction would take")
    worth: float = Field(description="the time saved within `auto_horizon_hours`, divided by the cost")
    reason: str = Field(description="the reason in one sentence")


class RecommendResult(Page, Result):
    recommendations: list[Recommendation] = Field(description="highest `worth` first, then most small files")


@operation(Recommend, RecommendResult, pool="metadata", examples=EXAMPLES)
def recommend(request: Recommend, adviser: Adviser) -> RecommendResult:
    """Rank tables by how much time a compaction would save queries, from metadata and measurements alone."""
    # The order changes with every query, so a cursor names the tables of the pages before it.
    seen = frozenset((request.place(list) or [[]])[0])
    ranked = adviser.ranked(request.tenant_id, request.only_namespace, lambda name: _mark(name) not in seen)
    page, next_cursor = request.page(ranked, lambda _: [])
    if next_cursor is not None:
        next_cursor = request.cursor_at([sorted(seen | {_mark(advice.name) for advice in page})])
    return RecommendResult(recommendations=[_recommendation(advice) for advice in page], next_cursor=next_cursor)


def _mark(name: TableName) -> str:
    """A short text that stands for a table in a cursor."""
    return base64.b85encode(hashlib.sha256(str(name).encode()).digest()[:8]).decode()


def _recommendation(advice: Advice) -> Recommendation:
    queries, forecast = advice.queries, advice.forecast
    return Recommendation(
        namespace=advice.name.namespace,
        table=advice.name.table,
        recommended=advice.recommended,
        mode=advice.mode,
        online=advice.online,
        small_files=advice.small,
        files=advice.merge.files,
        bytes=advice.bytes,
        files_after=advice.merge.files_after,
        queries_per_hour=round(queries.per_hour, 2),
        planning_ms=None if queries.planning_ms is None else round(queries.planning_ms, 1),
        files_opened=None if queries.files_opened is None else round(queries.files_opened, 1),
        predicted_query_saving_ms=round(forecast.saving_ms, 1),
        predicted_saving_ms_per_hour=round(forecast.saving_ms_per_hour, 1),
        predicted_cost_ms=round(forecast.cost_ms),
        worth=round(forecast.worth, 3),
        reason=why(advice),
    )
