"""The declaration of a dynamic table in a request: as a statement of SQL, or as fields."""

from functools import cached_property
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from service.dynamic.declare.creation import Declaration
from service.dynamic.query.statement import DynamicStatement, read_statement
from service.errors import InvalidRequest
from service.model.dynamic.definition import DynamicOptions, Mode
from service.model.dynamic.target_lag import parse_target_lag
from service.operations.dynamic.requests import NamedDynamicTable, Number, also_name
from service.operations.operation import TableRequest

_MOST_SQL = 100_000
_OPTIONS = (
    *("query", "target_lag", "refresh_mode", "initialize", "deduplication", "cardinality_threshold", "scheduler"),
    *("replace", "if_not_exists"),
)


def _may_lack_table(schema: dict[str, Any]) -> None:
    also_name(schema)
    schema["required"].remove("table")
    schema["properties"]["table"]["description"] += "; default: the one in sql"


class DeclarationRequest(NamedDynamicTable, TableRequest):
    """A request that declares a dynamic table."""

    model_config = ConfigDict(json_schema_extra=_may_lack_table)

    sql: str | None = Field(
        default=None,
        max_length=_MOST_SQL,
        description="`CREATE [OR REPLACE] DYNAMIC TABLE [IF NOT EXISTS] name TARGET_LAG = '5 minutes' [option = "
        "value …] AS SELECT …`; it says the same as the fields `table`, `query` and those below",
    )
    query: str | None = Field(default=None, max_length=_MOST_SQL, description="the query: one SELECT, in Spark SQL")
    target_lag: str | None = Field(
        default=None,
        description="how old the rows may become, such as `30 seconds`, `5 minutes`, `1 hour` or `1 day`; or "
        "`downstream`: as the tables that read it need it",
    )
    refresh_mode: Mode = Field(
        default="AUTO",
        description="`AUTO` decides at each refresh; `INCREMENTAL` whenever it is possible; `FULL` always computes all "
        "rows; `INCREMENTAL_STRICT` refuses a query that is not incremental",
    )
    initialize: Literal["ON_CREATE", "ON_SCHEDULE"] = Field(
        default="ON_CREATE", description="whether this request refreshes it, or the worker does so later"
    )
    deduplication: bool = Field(default=False, description="whether equal rows of the result are kept only once")
    cardinality_threshold: Number = Field(
        default=0.3,
        ge=0,
        le=1,
        description="the part of the rows of the sources that may change before AUTO refreshes in full, "
        "as long as it has not measured both modes",
    )
    scheduler: Literal["ENABLED", "DISABLED"] = Field(
        default="ENABLED", description="`DISABLED`: refresh it only by REFRESH_DYNAMIC_TABLE, as from dbt or Airflow"
    )
    replace: bool = Field(default=False, description="replace the query and the options of the table, if it exists")
    if_not_exists: bool = Field(default=False, description="do nothing if the table exists")

    @model_validator(mode="before")
    @classmethod
    def _read_sql(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("sql"), str):
            return value
        if len(value["sql"]) > _MOST_SQL:
            return value  # refused by the field's own rule
        for name in _OPTIONS:
            if value.get(name) is not None:
                raise InvalidRequest.at(name, "sql says it already; leave it out, or send fields without sql")
        found = read_statement(value["sql"])
        for name, given in (("table", found.table), ("name", found.table), ("namespace", found.namespace)):
            if given is not None and value.get(name, given) != given:
                raise InvalidRequest.at(name, f"sql is about {given!r}; send the same, or leave it out")
        named = {"table": found.table, **({"namespace": found.namespace} if found.namespace else {})}
        said = {"replace": found.replace, "if_not_exists": found.if_not_exists}
        return {**{key: item for key, item in value.items() if key != "name"}, **named, **said}

    @model_validator(mode="after")
    def _check_complete(self) -> "DeclarationRequest":
        if self.replace and self.if_not_exists:
            raise InvalidRequest.at("if_not_exists", "it contradicts replace; send one of them")
        for name in ("query", "target_lag"):
            if self.sql is None and getattr(self, name) is None:
                raise InvalidRequest.at(name, "it is missing; send query and target_lag, or sql, which has both")
        if self.target_lag is not None:
            parse_target_lag(self.target_lag)
        return self

    @cached_property
    def declaration(self) -> Declaration:
        """What the request declares."""
        if self.sql is not None:
            found = read_statement(self.sql)
            return Declaration(self.table_name, found.query, found.options, _in_place(found))
        assert self.query is not None
        assert self.target_lag is not None
        options = DynamicOptions(
            parse_target_lag(self.target_lag),
            self.refresh_mode,
            self.initialize,
            self.deduplication,
            self.cardinality_threshold,
            self.scheduler == "ENABLED",
        )
        query = self.query.strip().removesuffix(";").rstrip()
        return Declaration(self.table_name, query, options, self.query.rstrip().removesuffix(";"))


def _in_place(found: DynamicStatement) -> str:
    """The query, after as many empty lines and spaces as there is text before it in the statement."""
    return "\n" * (found.line - 1) + " " * (found.column - 1) + found.query
