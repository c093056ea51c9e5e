"""`firn policy …`: which rows of a table each role sees, and how columns are masked."""

import json
from typing import Any

from service.cli.command import Args, Command, Response, argument
from service.cli.commands.tables import table_command, table_name
from service.cli.files import read_object
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import full_name

_EVERY = "all"
_COLUMNS = (
    PageColumn("ROLE", name=True, value=lambda rule: rule["role"]),
    PageColumn("ROWS", value=lambda rule: _json(rule["rows"]) if "rows" in rule else _EVERY),
    PageColumn(
        "COLUMNS",
        value=lambda rule: (
            ", ".join(f"{name}: {_json(mask)}" for name, mask in rule.get("columns", {}).items()) or _EVERY
        ),
    ),
)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show_rules(rules: dict[str, Any], printer: Printer) -> None:
    printer.items(_COLUMNS, [{"role": role, **rule} for role, rule in rules.items()])


def _show(response: Response, args: Args, printer: Printer) -> None:
    description = response["description"]
    if "policy" in description:
        _show_rules(description["policy"], printer)
    elif description.get("has_policy"):
        printer.line(f"a policy protects {table_name(args)}; only its administrators see the rules")
    else:
        printer.line(f"{table_name(args)} has no policy")


def _show_set(response: Response, args: Args, printer: Printer) -> None:
    if response["rules"]:
        _show_rules(response["rules"], printer)
    else:
        printer.line(f"{table_name(args)} has no policy")
    tables = response.get("dynamic_tables", [])
    if tables:
        names = ", ".join(f"{one['namespace']}.{one['table']}" for one in tables)
        printer.line(f"these dynamic tables show its rows without the policy: {names}")
    if "warning" in response:
        printer.line(response["warning"])


COMMANDS: tuple[Command, ...] = (
    table_command(
        "policy set",
        "Set which rows of a table each role sees, and how columns are masked.",
        argument("rules", "FILE", "a YAML or JSON file with a rule for each role", parse=read_object),
        operation="SET_POLICY",
        show=_show_set,
    ),
    table_command("policy show", "Show the policy of a table.", operation="DESCRIBE_TABLE", show=_show),
    table_command(
        "policy clear",
        "Remove the policy of a table.",
        operation="SET_POLICY",
        constants={"rules": {}},
        question=lambda request: f"All who may read {full_name(request)} will see all of its rows and columns.",
        show=_show_set,
    ),
)
