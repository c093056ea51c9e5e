"""`firn schedule create`, `list`, `run` and `delete`."""

from typing import Any

from service.cli.command import Args, Command, Request, Response, argument, flag
from service.cli.commands.runs import COMMAND as RUN
from service.cli.commands.runs import NAME
from service.cli.examples import schedules as examples
from service.cli.files import read_object
from service.cli.terminal.format import format_time, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import given_fields, single_tenant


def _create(args: Args) -> Request:
    request: Request = {
        "operation": "CREATE_SCHEDULE",
        "tenant_id": single_tenant(args),
        "name": args.name,
        "cron": args.cron,
        "task": read_object(args.task) if args.task else {"operation": "COMPACT"},
        **given_fields(args, "timezone", "delay", "table", "namespace", "replace"),
    }
    if args.disabled:
        request["enabled"] = False
    if args.no_catch_up:
        request["catch_up"] = False
    return request


def _show_created(response: Response, args: Args, printer: Printer) -> None:
    word = "replaced" if response["schedule_replaced"] else "created"
    due = f"it is due at {format_time(response['next_run'])}" if response["next_run"] else "it is not enabled"
    printer.line(f"{word} {args.name} for {plural(response['tables'], 'table')}; {due}, where a service runs then")


def _list(args: Args) -> Request:
    return {"operation": "LIST_SCHEDULES", "tenant_id": single_tenant(args), **given_fields(args, "namespace")}


def _show_list(response: Response, args: Args, printer: Printer) -> None:
    columns = [PageColumn("SCHEDULE", whole=True), PageColumn("CRON"), PageColumn("ZONE")]
    columns += [PageColumn("TABLES", name=True), PageColumn("NEXT", whole=True), PageColumn("LAST RUN")]
    rows = [
        [s["name"], s["cron"], s["timezone"], _tables(s), format_time(s["next_run"]), _last_run(s)]
        for s in response["schedules"]
    ]
    printer.table(columns, rows)
    printer.line(plural(len(rows), "schedule"))


def _tables(schedule: dict[str, Any]) -> str:
    if schedule["scope"] == "all":
        return "all"
    return f"{schedule['namespace']}.{schedule['table'] or '*'}"


def _last_run(schedule: dict[str, Any]) -> str:
    if schedule["running"]:
        return "running"
    return schedule["last_run"]["state"] if schedule["last_run"] else "-"


def _delete(args: Args) -> Request:
    schedule = {"tenant_id": single_tenant(args), "name": args.name}
    return {"operation": "DELETE_SCHEDULE", **schedule, "if_exists": args.if_exists}


COMMANDS = (
    Command(
        "schedule create",
        "Compact tables at the times of a cron expression.",
        (
            NAME,
            argument("--cron", required=True, metavar="EXPRESSION", help="when, such as '0 2 * * *'"),
            argument("--timezone", metavar="ZONE", help="an IANA time zone, such as Europe/Zurich; UTC"),
            argument("--delay", metavar="TIME", help="start this much later, such as 15m"),
            argument("--table", metavar="TABLE", help="one table; else all of --namespace, or all of the tenant"),
            argument("--task", metavar="FILE", help="a YAML or JSON file with the task; a plain COMPACT"),
            flag("--disabled", "do not run it at its times"),
            flag("--no-catch-up", "skip runs that were due while no service ran"),
            flag("--replace", "replace a schedule of this name"),
        ),
        examples.CREATE,
        request=_create,
        show=_show_created,
    ),
    Command("schedule list", "List schedules.", (), examples.LIST, request=_list, show=_show_list),
    RUN,
    Command(
        "schedule delete",
        "Delete a schedule.",
        (NAME, flag("--if-exists", "do nothing if the schedule does not exist")),
        examples.DELETE,
        request=_delete,
        show=lambda response, args, printer: printer.line(
            "deleted" if response["schedule_deleted"] else "there is none"
        ),
        question=lambda request: f"The schedule {request['name']} and what is known of its runs are deleted.",
    ),
)
