"""The examples of commands about API keys, the audit log and policies."""

from service.cli.examples.shared import KEY, ORDERS, example

_MADE = ({"operation": "CREATE_KEY", "principal": "loader", "roles": ["writer"], "name": "nightly load"},)
_PROTECTED = (*ORDERS, "firn policy set shop.orders policy.yaml")
_RULES = (
    "ROLE    ROWS                               COLUMNS\n"
    'reader  {"customer": {"principal": "id"}}  amount: null\n'
    "writer  all                                all\n"
)
_OFF = "authentication is off, so the policy binds nobody; it takes effect once FIRN_AUTH__REQUIRED is true"

EXAMPLES = (
    example(
        "A key for a program that writes into one namespace, for 90 days",
        "firn key create loader --role writer:acme/shop --note 'nightly load' --expires 90d",
        "key        firn_…\nid         …\nprincipal  loader\nroles      writer:acme/shop\nexpires    …Z\n"
        "Keep the key now: it is not stored and cannot be shown again.\n",
        (),
    ),
    example(
        "The first key of an administrator, on the machine of the service",
        "firn key create ann --role 'admin:*' --offline",
        "key        firn_…\nid         …\nprincipal  ann\nroles      admin:*\n"
        "Keep the key now: it is not stored and cannot be shown again.\n",
        (),
    ),
    example(
        "List keys",
        "firn key list",
        "KEY         PRINCIPAL  ROLES                STATE  EXPIRES  LAST USED  NOTE\n"
        "…  loader     …  live   -        -          nightly load\n1 key\n",
        _MADE,
    ),
    example(
        "A new key; the old one works for another two days",
        f"firn key rotate {KEY} --keep 2d",
        "key           firn_…\nid            …\nprincipal     loader\nroles         …\nold key ends  …Z\n"
        "Keep the key now: it is not stored and cannot be shown again.\n",
        _MADE,
    ),
    example("End a key now", f"firn key revoke {KEY}", "revoked … of loader\n", _MADE),
    example(
        "Show each reader its own orders, without amounts, and writers all of the table",
        "firn policy set shop.orders policy.yaml",
        _RULES + f"{_OFF}\n",
    ),
    example("Show the rules", "firn policy show shop.orders", _RULES, _PROTECTED),
    example(
        "Show all of the table again",
        "firn policy clear shop.orders --yes",
        f"shop.orders has no policy\n{_OFF}\n",
        _PROTECTED,
    ),
    example("Which requests were refused", "firn audit --outcome FORBIDDEN --limit 20", "…\n0 requests\n", ()),
)
