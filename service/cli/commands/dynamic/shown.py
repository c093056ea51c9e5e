"""What the commands of `firn dynamic` print."""

from typing import Any

from service.cli.command import Args, Response
from service.cli.commands.tables import table_name
from service.cli.terminal.format import format_duration, format_number, format_time, format_value, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.terminal.tree import draw

_COLUMNS = (
    PageColumn("TABLE", name=True, value=lambda one: _name(one)),
    PageColumn("STATE", whole=True, value=lambda one: one["state"]),
    PageColumn("LAG", right=True, value=lambda one: _lag(one)),
    PageColumn("TARGET", whole=True, value=lambda one: one["target_lag"]),
    PageColumn("LAST", whole=True, value=lambda one: one.get("last_mode", "-")),
    PageColumn("READS", value=lambda one: ", ".join(map(_name, one["sources"]))),
)
_REFRESHES = (
    PageColumn("STARTED", whole=True, value=lambda one: format_time(one["started_at"])),
    PageColumn("TABLE", name=True, value=lambda one: _name(one)),
    PageColumn("STATE", whole=True, value=lambda one: one["state"]),
    PageColumn("MODE", whole=True, value=lambda one: one.get("mode", "-")),
    PageColumn("ADDED", right=True, value=lambda one: format_number(one["records_inserted"])),
    PageColumn("REMOVED", right=True, value=lambda one: format_number(one["records_deleted"])),
    PageColumn("TOOK", right=True, value=lambda one: _took(one)),
    PageColumn("REASON", value=lambda one: one.get("error", {}).get("message") or one.get("reason", "-")),
)


def _name(one: dict[str, Any]) -> str:
    return f"{one['namespace']}.{one['table']}"


def _lag(one: dict[str, Any]) -> str:
    return format_duration(one["lag_ms"]) if "lag_ms" in one else "-"


def _took(one: dict[str, Any]) -> str:
    return f"{one['duration_ms'] / 1000:.1f} s" if "duration_ms" in one else "-"


def show_list(response: Response, args: Args, printer: Printer) -> None:
    tables = response["dynamic_tables"]
    printer.items(_COLUMNS, tables)
    printer.line(plural(len(tables), "dynamic table"))


def show_created(response: Response, args: Args, printer: Printer) -> None:
    found = response.get("plan") or response
    table, dry_run = _name(found), bool(response.get("plan"))
    done = {
        "created": "Created {}",
        "nothing": "{} has this query already",
        "options": "Changed the options of {}",
        "columns_added": "Computed {} again, with more columns",
        "rebuild": "Computed {} again, by another query",
    }
    planned = {
        "created": "{} would be created",
        "nothing": "{} has this query already",
        "options": "The options of {} would change",
        "columns_added": "{} would be computed again, with more columns",
        "rebuild": "{} would be computed again, by another query",
    }
    if dry_run:
        printer.line(planned[found["change"]].format(table))
    else:
        rows = f": {plural(found['records_inserted'], 'row')}" if "records_inserted" in found else ""
        printer.success(done[found["change"]].format(table) + rows)
    for what, names in (("new", found["columns_added"]), ("gone", found["columns_removed"])):
        if names:
            printer.line(f"  {what} columns: {', '.join(names)}")
    _show_classes(found, printer)
    if dry_run:
        printer.line(f"  columns: {', '.join(found['schema']['fields'])}")
    for reader in found.get("dependents", ()):
        printer.line(f"  read by {_name(reader)}")


def _show_classes(found: dict[str, Any], printer: Printer) -> None:
    reason = found.get("not_incremental")
    if reason:
        printer.line(f"  refreshed in full: {reason['code']}: {reason['message']}")
    else:
        printer.line(f"  refreshed incrementally: {', '.join(found['classes'])}")


def show_description(response: Response, args: Args, printer: Printer) -> None:
    found = response["dynamic_table"]
    usual = f", mostly below {format_duration(found['lag_p95_ms'])}" if "lag_p95_ms" in found else ""
    reason = found.get("not_incremental")
    printer.pairs(
        {
            "table": _name(found),
            "state": found["state"] + (f": {found['reason']}" if "reason" in found else ""),
            "to resume": f"firn dynamic alter {_name(found)} --resume" if found["state"] == "failed" else None,
            "lag": _lag(found) + usual,
            "target lag": found["target_lag"],
            "mode": found["refresh_mode"] + (f", always in full: {reason['message']}" if reason else ""),
            "scheduler": found["scheduler"].lower(),
            "refreshed": format_time(found.get("refreshed_at")),
            "columns": ", ".join(found["schema"]["fields"]),
            "reads": ", ".join(_name(one) + ("" if one["exists"] else " (dropped)") for one in found["sources"]),
            "read by": ", ".join(map(_name, found["dependents"])) or None,
        }
    )
    printer.text(found.get("query", "its query names tables that you may not read"))
    if found["refreshes"]:
        printer.items([column for column in _REFRESHES if column.title != "TABLE"], found["refreshes"])


def show_explained(response: Response, args: Args, printer: Printer) -> None:
    printer.line("incremental" if response["incremental"] else "in full at each refresh")
    reason = response.get("not_incremental")
    if reason:
        place = f" (line {reason['line']}, column {reason['column']})" if "line" in reason else ""
        printer.line(f"  {reason['code']}: {reason['message']}{place}")
    if response["classes"]:
        printer.line(f"  {', '.join(response['classes'])}")
    for number, source in enumerate(response["sources"]):
        printer.line(f"  s{number}: {_name(source)} ({', '.join(source['columns'])})")
    plan = response.get("incremental_plan")
    if plan is None:
        return
    keys = f" {', '.join(plan['keys'])}" if plan.get("keys") else ""
    printer.line(f"  applied {plan['applied']}{keys}")
    for step in plan["steps"]:
        printer.line(f"{step['view']}:")
        printer.text(step["sql"])


def show_refreshed(response: Response, args: Args, printer: Printer) -> None:
    rows = f"{response['records_inserted']:,} added, {response['records_deleted']:,} removed"
    if response["mode"] == "NO_DATA":
        printer.success(f"{table_name(args)} is up to date: no row of its sources has changed")
    else:
        printer.success(f"Refreshed {table_name(args)} ({response['mode']}, {response['reason']}): {rows}")
    for one in response["tables"]:
        if one["state"] != "done":
            why = one.get("message") or one.get("reason", "")
            printer.line(f"  {_name(one)}: {one['state'].replace('_', ' ')}: {why}")


def show_audited(response: Response, args: Args, printer: Printer) -> None:
    compared = plural(response["records_compared"], "row")
    if response["matches"]:
        printer.success(f"{table_name(args)} has the rows of its query: {compared} compared")
        return
    missing, unexpected = response["records_missing"], response["records_unexpected"]
    differing = f"{plural(missing, 'row')} missing, {unexpected:,} unexpected"
    if response["repaired"]:
        printer.success(f"Repaired {table_name(args)}: {differing}")
    else:
        printer.line(f"{table_name(args)} differs from its query: {differing}, of {compared}; --repair replaces them")
    for one in response["examples"]:
        sign, count = ("missing", one["missing"]) if "missing" in one else ("unexpected", one["unexpected"])
        printer.line(f"  {sign}, {count}: {format_value(one['row'])}")


def show_altered(response: Response, args: Args, printer: Printer) -> None:
    reason = f": {response['reason']}" if "reason" in response else ""
    printer.success(f"{table_name(args)}: {response['state']}{reason}, target lag {response['target_lag']}")


def show_dropped(response: Response, args: Args, printer: Printer) -> None:
    if not response["table_dropped"]:
        printer.line(f"{table_name(args)} does not exist")
        return
    for one in (*map(_name, response["dropped"]), table_name(args)):
        printer.success(f"Dropped {one}")
    if "expires_at" in response:
        printer.line(f"  `firn table restore` can bring it back until {format_time(response['expires_at'])}")


def show_history(response: Response, args: Args, printer: Printer) -> None:
    printer.items(_REFRESHES, response["refreshes"])
    printer.line(plural(len(response["refreshes"]), "refresh", "refreshes"))


def show_graph(response: Response, args: Args, printer: Printer) -> None:
    tables = {_name(one): one for one in response["dynamic_tables"]}
    readers: dict[str, list[str]] = {}
    for name, one in tables.items():
        for source in dict.fromkeys(map(_name, one["sources"])):
            readers.setdefault(source, []).append(name)
    if not tables:
        printer.line("there are no dynamic tables")
        return

    def label(name: str) -> str:
        one = tables.get(name)
        if one is None:
            return name
        state = "" if one["state"] == "active" else f", {one['state']}"
        return f"{name}  [{one['target_lag']}; lag {_lag(one)}; {one.get('last_mode', 'not refreshed yet')}{state}]"

    roots = sorted(name for name in readers if name not in tables)
    lines = draw(roots, lambda name: readers.get(name, ()), label, ascii_only=not printer.can_print("├─└│"))
    printer.text("\n".join(lines))
