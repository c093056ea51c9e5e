"""`firn dynamic …`: tables that are the results of queries, and are kept up to date."""

from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Command, Request, Response, UsageError, argument, flag, number, repeated
from service.cli.commands.tables import DRY_RUN, scope_options, table_command, table_name
from service.cli.connection.jobs import wait_for_job
from service.cli.connection.lists import whole_list
from service.cli.connection.remote import new_key
from service.cli.files import read_input
from service.cli.terminal.format import format_duration, format_number, format_time, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.terminal.tree import draw
from service.cli.values import full_name, named_table

_STATES = ("active", "suspended", "failed")
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


def _create(call: Invocation) -> int:
    request = {**call.request(), "sql": read_input(call.args.file, call.stdin)[0]}
    if call.args.namespace:
        request["namespace"] = call.args.namespace
    return call.show(_as_job(call, request, "create"))


def _refresh(call: Invocation) -> int:
    request = call.request()
    return call.show(_as_job(call, request, f"refresh {full_name(request)}"))


def _as_job(call: Invocation, request: Request, what: str) -> Response:
    """The response to a request that may go on as a job."""
    with call.connect() as connection, call.progress(what) as on_progress:
        if request.get("dry_run"):
            return connection.send(request)
        started = connection.send({**request, "async": True, "idempotency_key": new_key()})
        if "job_id" not in started:
            return started
        return wait_for_job(connection, started["job_id"], on_progress, cancels=True)


def _show_list(response: Response, args: Args, printer: Printer) -> None:
    tables = response["dynamic_tables"]
    printer.items(_COLUMNS, tables)
    printer.line(plural(len(tables), "dynamic table"))


def _show_created(response: Response, args: Args, printer: Printer) -> None:
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


def _show_description(response: Response, args: Args, printer: Printer) -> None:
    found = response["description"]
    usual = f", mostly below {format_duration(found['lag_p95_ms'])}" if "lag_p95_ms" in found else ""
    reason = found.get("not_incremental")
    printer.pairs(
        {
            "table": _name(found),
            "state": found["state"] + (f": {found['reason']}" if "reason" in found else ""),
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
    printer.text(found["query"])
    if found["refreshes"]:
        printer.items([column for column in _REFRESHES if column.title != "TABLE"], found["refreshes"])


def _explain(call: Invocation) -> int:
    request, args = call.request(), call.args
    if (args.table is None) == (args.file is None):
        raise UsageError("name a dynamic table, or give a query by --file; one of them")
    if args.table is None:
        request |= {"query": read_input(args.file, call.stdin)[0]}
        request |= {"namespace": args.namespace} if args.namespace else {}
    else:
        request |= named_table(args.table, args)
    with call.connect() as connection:
        return call.show(connection.send(request))


def _show_explained(response: Response, args: Args, printer: Printer) -> None:
    printer.line("incremental" if response["incremental"] else "in full at each refresh")
    reason = response.get("not_incremental")
    if reason:
        place = f" (line {reason['line']}, column {reason['column']})" if "line" in reason else ""
        printer.line(f"  {reason['code']}: {reason['message']}{place}")
    if response["classes"]:
        printer.line(f"  {', '.join(response['classes'])}")
    for number_, source in enumerate(response["sources"]):
        printer.line(f"  s{number_}: {_name(source)} ({', '.join(source['columns'])})")
    plan = response.get("plan")
    if plan is None:
        return
    keys = f" {', '.join(plan['keys'])}" if plan.get("keys") else ""
    printer.line(f"  applied {plan['applied']}{keys}")
    for step in plan["steps"]:
        printer.line(f"{step['view']}:")
        printer.text(step["sql"])


def _show_refreshed(response: Response, args: Args, printer: Printer) -> None:
    rows = f"{response['records_inserted']:,} added, {response['records_deleted']:,} removed"
    if response["mode"] == "NO_DATA":
        printer.success(f"{table_name(args)} is up to date: no row of its sources has changed")
    else:
        printer.success(f"Refreshed {table_name(args)} ({response['mode']}, {response['reason']}): {rows}")
    for one in response["tables"]:
        if one["state"] != "done":
            why = one.get("message") or one.get("reason", "")
            printer.line(f"  {_name(one)}: {one['state'].replace('_', ' ')}: {why}")


def _show_altered(response: Response, args: Args, printer: Printer) -> None:
    reason = f": {response['reason']}" if "reason" in response else ""
    printer.success(f"{table_name(args)}: {response['state']}{reason}, target lag {response['target_lag']}")


def _show_dropped(response: Response, args: Args, printer: Printer) -> None:
    if not response["table_dropped"]:
        printer.line(f"{table_name(args)} does not exist")
        return
    for one in (*map(_name, response["dropped"]), table_name(args)):
        printer.success(f"Dropped {one}")
    if "expires_at" in response:
        printer.line(f"  `firn table restore` can bring it back until {format_time(response['expires_at'])}")


def _check_drop(request: Request, connection: Any) -> Response | None:
    """The response to dropping a table that cannot be dropped, or does not exist; else None."""
    address = {name: request[name] for name in ("tenant_id", "namespace", "table")}
    described = connection.send({"operation": "DESCRIBE_DYNAMIC_TABLE", **address, "refreshes": 0})
    if not described["success"]:
        missing = described["error"]["code"] == "TABLE_NOT_FOUND" and request.get("if_exists")
        nothing = {"success": True, "table_dropped": False, "table_existed": False, "purged": False, "dropped": []}
        return nothing if missing else dict(described)
    if described["description"]["dependents"] and not request.get("cascade"):
        return dict(connection.send({**request, "confirm": True}))  # it is refused, and says why
    return None


def _history(request: Request, args: Args) -> Request:
    named = named_table(args.table, args) if args.table else {}
    if args.table and request.get("scope"):
        raise UsageError("a table is in one namespace; leave --all-namespaces out")
    return {**request, **named}


def _show_history(response: Response, args: Args, printer: Printer) -> None:
    printer.items(_REFRESHES, response["refreshes"])
    printer.line(plural(len(response["refreshes"]), "refresh").replace("refreshs", "refreshes"))


def _graph(call: Invocation) -> int:
    request = call.request()
    with call.connect() as connection:
        response = whole_list(connection, request, ("dynamic_tables",))
    return call.show(response)


def _show_graph(response: Response, args: Args, printer: Printer) -> None:
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


COMMANDS = (
    Command(
        "dynamic create",
        "Declare a table as the result of a query, and build it.",
        (
            argument(
                "--file",
                "FILE",
                "a file with CREATE DYNAMIC TABLE …; - for the standard input",
                None,
                short="-f",
                required=True,
            ),
            DRY_RUN,
        ),
        operation="CREATE_DYNAMIC_TABLE",
        run=_create,
        show=_show_created,
        details="CREATE OR REPLACE DYNAMIC TABLE replaces the query of a table; --dry-run shows what it would rebuild.",
    ),
    Command(
        "dynamic list",
        "List dynamic tables, with their states and lags.",
        (*scope_options("the dynamic tables"), argument("--state", None, "only those in this state", choices=_STATES)),
        operation="LIST_DYNAMIC_TABLES",
        lists=("dynamic_tables",),
        show=_show_list,
    ),
    table_command(
        "dynamic describe",
        "Show the definition, the state and the last refreshes of a dynamic table.",
        number("--refreshes", "how many of the last refreshes to show (default: 10)"),
        operation="DESCRIBE_DYNAMIC_TABLE",
        show=_show_description,
    ),
    Command(
        "dynamic explain",
        "Show how a dynamic table, or a query, would be refreshed.",
        (
            argument("table", "TABLE", "a dynamic table", None, nargs="?"),
            argument("--file", "FILE", "a file with a query; - for the standard input", None, short="-f"),
            repeated("--changed", "SOURCE", "show the plan for changes of this source"),
        ),
        operation="EXPLAIN_DYNAMIC_TABLE",
        run=_explain,
        show=_show_explained,
    ),
    table_command(
        "dynamic refresh",
        "Bring a dynamic table up to date, and first all that it depends on.",
        flag("--cascade", "also refresh the dynamic tables that depend on it"),
        operation="REFRESH_DYNAMIC_TABLE",
        run=_refresh,
        show=_show_refreshed,
    ),
    table_command(
        "dynamic alter",
        "Change the target lag of a dynamic table, suspend it, or resume it.",
        argument("--lag", "LAG", "the target lag, such as '5 minutes', or downstream", "target_lag"),
        argument(
            "--scheduler", None, "whether the worker refreshes it", parse=str.upper, choices=("enabled", "disabled")
        ),
        flag("--suspend", "stop refreshing it"),
        flag("--resume", "refresh it again"),
        argument("--reason", "TEXT", "why it is suspended"),
        operation="ALTER_DYNAMIC_TABLE",
        show=_show_altered,
    ),
    table_command(
        "dynamic drop",
        "Drop a dynamic table. It can be restored unless its files are deleted.",
        flag("--cascade", "also drop the dynamic tables that depend on it"),
        flag("--purge", "delete its files, for good"),
        flag("--if-exists", "do nothing if the table does not exist"),
        operation="DROP_DYNAMIC_TABLE",
        constants={"confirm": True},  # the question, or --yes, is the confirmation
        check=_check_drop,
        question=lambda request: f"The dynamic table {full_name(request)} is dropped.",
        show=_show_dropped,
    ),
    Command(
        "dynamic history",
        "List the refreshes of dynamic tables, newest first.",
        (
            argument("table", "TABLE", "only this dynamic table", None, nargs="?"),
            *scope_options("refreshes"),
            argument("--state", None, "only those in this state", choices=("running", "done", "failed")),
            argument("--since", "TIME", "only those that started at this time or later"),
            number("--limit", "how many to list (default: 100)"),
        ),
        operation="REFRESH_HISTORY",
        complete=_history,
        lists=("refreshes",),
        show=_show_history,
    ),
    Command(
        "dynamic graph",
        "Draw which dynamic tables read which tables.",
        scope_options("the dynamic tables"),
        operation="LIST_DYNAMIC_TABLES",
        run=_graph,
        show=_show_graph,
    ),
)
