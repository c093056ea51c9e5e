"""SET_POLICY: set which rows of a table each role sees, and how columns are masked."""

import secrets
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.dynamic.definitions import Definitions
from service.guard.policies import Policies
from service.identity.identities import Identities
from service.model.call import Call
from service.model.policy.policy import POLICY_PROPERTY, PolicyRule, TablePolicy, read_policy
from service.operations.dynamic.results import TableAddress
from service.operations.examples import create_table, response
from service.operations.operation import ChangeRequest, Example, Result, omit_when_null, operation

OPERATION = "SET_POLICY"
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "customers"}
CREATE = create_table(
    ADDRESS, {"id": "long", "region": "string", "owner": "string", "email": "string", "credit": "decimal(10,2)"}
)
RULES: dict[str, Any] = {
    "reader": {
        "rows": {"region": {"in": {"principal": "claims.regions"}}},
        "columns": {"email": "hash", "credit": "hidden"},
    },
    "support": {
        "rows": {"or": [{"region": "EU"}, {"owner": {"principal": "id"}}]},
        "columns": {"email": {"redact": 4}, "credit": "null"},
    },
    "writer": {},
}
SET = {"operation": OPERATION, **ADDRESS, "rules": RULES}
# What the tests' service says, too.
_WARNING = "authentication is off, so the policy binds nobody; it takes effect once FIRN_AUTH__REQUIRED is true"
EXAMPLES = (
    Example(
        "Show each reader the rows of its regions, and mask columns",
        SET,
        response(snapshot=False, rules=RULES, warning=_WARNING),
        given=(CREATE,),
    ),
    Example(
        "Remove the policy",
        {"operation": OPERATION, **ADDRESS, "rules": {}},
        response(snapshot=False, rules={}, warning=_WARNING),
        given=(CREATE, SET),
    ),
)


class RoleRule(BaseModel):
    """What one role sees of the table; `{}` for all of it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rows: Any = Field(
        default=None,
        description='a filter of either dialect, in which values may be attributes of the sender, such as `{"region": '
        '{"principal": "claims.region"}}`; default: every row',
    )
    columns: dict[str, Any] = Field(
        default={},
        description='the masks of columns: `"null"`, `"hash"`, `"redact"`, `"hidden"`, `{"redact": 4}` or '
        '`{"constant": value}`; other columns are shown',
    )


class SetPolicy(ChangeRequest):
    operation: Literal["SET_POLICY"]
    rules: dict[str, RoleRule] = Field(
        description="what each role sees: `reader`, `writer`, or a role that only tokens have. A sender with several "
        "roles sees what any of them shows, one without a rule nothing, an administrator everything. `{}` removes the "
        "policy"
    )


class SetPolicyResult(Result):
    rules: dict[str, Any] = Field(description="the rules now; {} if the table has no policy")
    dynamic_tables: list[TableAddress] | None = omit_when_null(
        "the dynamic tables that read this one: they show its rows without the policy, and need policies of their own"
    )
    warning: str | None = omit_when_null("why the policy has no effect yet")


@operation(SetPolicy, SetPolicyResult, pool="tables", examples=EXAMPLES, needs="admin")
def set_policy(
    request: SetPolicy,
    call: Call,
    catalog: Catalog,
    commits: Commits,
    definitions: Definitions,
    policies: Policies,
    identities: Identities,
) -> SetPolicyResult:
    """Set a table's policy: which rows each role sees, and how columns are masked; it replaces the one before."""
    rules = {role: PolicyRule(rule.rows, rule.columns) for role, rule in request.rules.items()}

    def change(current: Table, batch: str) -> Table:
        text = _policy(current, rules)
        return catalog.set_properties(current, {POLICY_PROPERTY: text})

    table = commits.table(request.table_name, call)
    _policy(table, rules)  # what does not fit is refused before anything is recorded
    after = commits.alter(table, OPERATION, call, change)
    policies.changed(after.name)
    stored = read_policy(after.properties.get(POLICY_PROPERTY, ""))
    readers = definitions.records.readers([table.uuid]) if stored else []
    seen = [one.name for one in readers if call.principal.may("reader", one.name.tenant, one.name.namespace)]
    return SetPolicyResult(
        rules=stored.described if stored else {},
        dynamic_tables=[TableAddress.of(name) for name in seen] or None,
        warning=None if identities.required else _WARNING,
    )


def _policy(table: Table, rules: dict[str, PolicyRule]) -> str | None:
    """The property's text; None for no policy. Hashes of a table stay the same when its policy changes."""
    if not rules:
        return None
    before = read_policy(table.properties.get(POLICY_PROPERTY, ""))
    policy = TablePolicy(rules, before.salt if before else secrets.token_hex(16))
    policy.check(table.schema)
    return policy.text
