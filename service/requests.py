"""What the requests of several operations have in common."""

from typing import Any

from pydantic import Field

from service.columns import columns_of
from service.errors import InvalidRequest
from service.filters import parse_either
from service.operation import ChangeRequest
from service.predicates import Predicate
from service.schema import TableSchema
from service.settings import KeptHours


class BackedUpRequest(ChangeRequest):
    """A change that can keep the state before it."""

    create_backup: bool | None = Field(
        default=None, description="keep the state before as a backup, which the answer names; default: the table's own"
    )
    backup_retention_hours: KeptHours | None = Field(default=None, description="for how long; default: the table's own")


class RowsRequest(ChangeRequest):
    """A request for the rows that a filter finds, or expressly for all."""

    filter: Any = Field(default=None, description="which rows, in either filter dialect")
    filters: Any = Field(default=None, description="another name for filter")
    all: bool = Field(default=False, description="every row; needed where no filter is given")

    def predicate(self, schema: TableSchema) -> Predicate:
        """The rows meant. A forgotten filter must not mean every row."""
        filtered = self.filter is not None or self.filters is not None
        if self.all and filtered:
            raise InvalidRequest("all: true and a filter contradict each other; send one of them", field="all")
        if not self.all and not filtered:
            raise InvalidRequest("filter is missing; say which rows, or all: true for every row", field="filter")
        if not self.all and _says_nothing(self.filter if self.filters is None else self.filters):
            raise InvalidRequest(
                "filter is empty; say which rows, or send all: true alone for every row", field="filter"
            )
        return parse_either(self.filter, self.filters, columns_of(schema))


def _says_nothing(filter_json: Any) -> bool:
    """Whether a filter holds no condition at all, however it is nested."""
    if isinstance(filter_json, dict):
        return all(key in ("and", "or", "not") and _says_nothing(value) for key, value in filter_json.items())
    return filter_json is None or (isinstance(filter_json, list) and all(map(_says_nothing, filter_json)))
