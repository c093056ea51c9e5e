"""SET_ONLINE: whether scheduled upkeep looks after a table."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.maintenance.advise.auto import Auto
from service.model.call import Call
from service.operations.examples import response
from service.operations.operation import ChangeRequest, Confirmable, Example, Result, operation
from service.tables.life import TableLife

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "imports"}
CREATE = {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}}


def _answer(*, online: bool) -> dict[str, Any]:
    return response(snapshot=False, online=online)


OFFLINE = {"operation": "SET_ONLINE", **ADDRESS, "online": False}
EXAMPLES = (
    Example("Have upkeep leave a table alone", OFFLINE, _answer(online=False), (CREATE,)),
    Example("Have upkeep look after it again", {**OFFLINE, "online": True}, _answer(online=True), (CREATE, OFFLINE)),
)


class SetOnline(Confirmable, ChangeRequest):
    operation: Literal["SET_ONLINE"]
    online: bool = Field(description="false: schedules, mode auto and refreshes leave it alone")


class SetOnlineResult(Result):
    online: bool = Field(description="how it is now")


@operation(SetOnline, SetOnlineResult, pool="tables", examples=EXAMPLES)
def set_online(request: SetOnline, call: Call, catalog: Catalog, auto: Auto, life: TableLife) -> SetOnlineResult:
    """Take a table offline, so that scheduled upkeep leaves it alone, or online again; requests work either way."""
    table = catalog.load(request.table_name)
    life.set_online(table, request.online, call)
    auto.policy_changed(table.name)
    return SetOnlineResult(online=request.online)
