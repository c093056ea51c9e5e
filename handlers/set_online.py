"""SET_ONLINE: include a table in scheduled maintenance, or exclude it."""

from typing import Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.maintenance.advise.auto import Auto
from service.model.call import Call
from service.operations.examples import create_table, response
from service.operations.operation import ChangeRequest, Example, Result, operation
from service.tables.life import TableLifecycle

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "imports"}
CREATE = create_table(ADDRESS, {"id": "long"})
OFFLINE = {"operation": "SET_ONLINE", **ADDRESS, "online": False}
EXAMPLES = (
    Example("Take a table offline", OFFLINE, response(snapshot=False, online=False), (CREATE,)),
    Example(
        "Bring it online again", {**OFFLINE, "online": True}, response(snapshot=False, online=True), (CREATE, OFFLINE)
    ),
)


class SetOnline(ChangeRequest):
    operation: Literal["SET_ONLINE"]
    online: bool = Field(description="false: schedules, mode auto and refreshes skip the table")


class SetOnlineResult(Result):
    online: bool = Field(description="whether it is online now")


@operation(SetOnline, SetOnlineResult, pool="tables", examples=EXAMPLES)
def set_online(request: SetOnline, call: Call, catalog: Catalog, auto: Auto, life: TableLifecycle) -> SetOnlineResult:
    """Take a table offline, so that scheduled maintenance skips it, or online again; requests always work."""
    table = catalog.load(request.table_name)
    life.set_online(table, request.online, call)
    auto.policy_changed(table.name)
    return SetOnlineResult(online=request.online)
