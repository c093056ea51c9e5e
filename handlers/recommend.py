"""RECOMMEND: which tables are worth compacting, the most worthwhile first, and why, in numbers."""

from typing import Literal

from pydantic import BaseModel, Field

from service.maintenance.advise.advice import Advice, Adviser, why
from service.operations.examples import response
from service.operations.operation import Example, Result, WideRequest, operation
from service.settings import Mode

ADDRESS = {"tenant_id": "acme", "namespace": "shop"}
EXAMPLES = (
    Example(
        "Which tables to compact",
        {"operation": "RECOMMEND", "tenant_id": "acme", "limit": 10},
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
                    "planning_ms": None,
                    "files_opened": None,
                    "predicted_query_saving_ms": "<any>",
                    "predicted_saving_ms_per_hour": "<any>",
                    "predicted_cost_ms": 0,
                    "worth": "<any>",
                    "reason": "there are no small files",
                },
            ],
            truncated=False,
        ),
        given=(
            {
                "operation": "CREATE_TABLE",
                "tenant_id": "acme",
                "namespace": "office",
                "table": "letters",
                "schema": {"fields": {"text": {"type": "string"}}},
            },
            {
                "operation": "CREATE_TABLE",
                **ADDRESS,
                "table": "searches",
                "schema": {"fields": {"words": {"type": "string"}}},
            },
            *(
                {"operation": "WRITE", **ADDRESS, "table": "searches", "records": [{"words": words}]}
                for words in ("snow", "old snow", "ice")
            ),
            {"operation": "QUERY", **ADDRESS, "table": "searches", "sort": ["words"]},
        ),
    ),
)


class Recommend(WideRequest):
    operation: Literal["RECOMMEND"]
    limit: int = Field(default=100, ge=1, le=10_000, description="at most so many tables")


class Recommendation(BaseModel):
    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name")
    recommended: bool = Field(
        description="whether enough small files are in one partition, as WRITE says it, its mode is not `off` and "
        "it is online"
    )
    mode: Mode = Field(description="the table's compaction mode; `off` where compaction is disabled")
    online: bool = Field(description="whether scheduled upkeep looks after the table, as SET_ONLINE says")
    small_files: int = Field(description="data files that count as small")
    files: int = Field(description="data files")
    bytes: int = Field(description="their size")
    files_after: int = Field(description="how many there would be once all that are worth it are merged")
    queries_per_hour: float = Field(description="lately, by this instance's own count since it was started")
    planning_ms: float | None = Field(
        description="the median planning time of its queries; null where none was measured since the last compaction"
    )
    files_opened: float | None = Field(description="data files that a query opens on average; null likewise")
    predicted_query_saving_ms: float = Field(description="by how much quicker a query would be")
    predicted_saving_ms_per_hour: float = Field(description="what all queries of an hour would save together")
    predicted_cost_ms: int = Field(description="how long merging would take")
    worth: float = Field(description="what is saved within `auto_horizon_hours`, in units of the cost")
    reason: str = Field(description="the same in one sentence")


class RecommendResult(Result):
    recommendations: list[Recommendation] = Field(
        description="the most worthwhile first; those worth the same by their small files"
    )
    truncated: bool = Field(description="whether there are more tables than `limit`")


@operation(Recommend, RecommendResult, pool="metadata", examples=EXAMPLES)
def recommend(request: Recommend, adviser: Adviser) -> RecommendResult:
    """Rank tables by what compacting them would save queries, from metadata and measurements; no job is run."""
    ranked = adviser.ranked(request.tenant_id, request.namespace)
    return RecommendResult(
        recommendations=[_recommendation(advice) for advice in ranked[: request.limit]],
        truncated=len(ranked) > request.limit,
    )


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
