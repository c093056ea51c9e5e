"""What the requests about dynamic tables share: `name` is another name for `table`."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from service.errors import InvalidRequest
from service.operations.operation import ChangeRequest, TableRequest


def _as_float(value: Any) -> Any:
    """Bodies are parsed without floats."""
    return float(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else value


Number = Annotated[float, BeforeValidator(_as_float)]
"""A number in a request."""


def also_name(schema: dict[str, Any]) -> None:
    """Say so in the description of a request."""
    schema["properties"]["table"]["description"] += "; `name` means the same"


class NamedDynamicTable(BaseModel):
    """A request that may name its table as `name`, as the statement that declares one does."""

    model_config = ConfigDict(json_schema_extra=also_name)

    @model_validator(mode="before")
    @classmethod
    def _name_table(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "name" not in value:
            return value
        if value.get("table", value["name"]) != value["name"]:
            raise InvalidRequest.at("name", "it contradicts table, which means the same; send one of them")
        return {**{key: found for key, found in value.items() if key != "name"}, "table": value["name"]}


class DynamicTableRequest(NamedDynamicTable, TableRequest):
    """A request that reads something about a dynamic table."""


class DynamicTableChange(NamedDynamicTable, ChangeRequest):
    """A request that changes a dynamic table."""
