"""`firn schedule …` and `firn namespace …`."""

from typing import Any

from service.cli.command import Answer, Args, Command, Request, argument, flag
from service.cli.examples import schedules as examples
from service.cli.files import read
from service.cli.page import Column, Page, count, moment
from service.cli.runs import COMMAND as RUN
from service.cli.runs import NAME
from service.cli.values import tenant_of

SPACE = argument("name", metavar="NAMESPACE", help="its name")


def _create(args: Args) -> Request:
    request: Request = {
        "operation": "CREATE_SCHEDULE",
        "tenant_id": tenant_of(args),
        "name": args.name,
        "cron": args.cron,
        "task": read(args.task) if args.task else {"operation": "COMPACT"},
    }
    for name in ("timezone", "delay", "table", "namespace"):
        if getattr(args, name):
            request[name] = getattr(args, name)
    wishes = {"enabled": (args.disabled, False), "catch_up": (args.no_catch_up, False), "replace": (args.replace, True)}
    return request | {name: value for name, (said, value) in wishes.items() if said}


def _created(answer: Answer, args: Args, page: Page) -> None:
    word = "replaced" if answer["schedule_replaced"] else "created"
    due = f"it is due at {moment(answer['next_run'])}" if answer["next_run"] else "it is not enabled"
    page.line(f"{word} {args.name} for {count(answer['tables'], 'table')}; {due}, where a service runs then")


def _list(args: Args) -> Request:
    request: Request = {"operation": "LIST_SCHEDULES", "tenant_id": tenant_of(args)}
    return {**request, "namespace": args.namespace} if args.namespace else request


def _listed(answer: Answer, args: Args, page: Page) -> None:
    columns = [Column("SCHEDULE", whole=True), Column("CRON"), Column("ZONE"), Column("TABLES", name=True)]
    page.table(
        [*columns, Column("NEXT", whole=True), Column("LAST RUN")],
        [
            [s["name"], s["cron"], s["timezone"], _tables(s), moment(s["next_run"]), _last(s)]
            for s in answer["schedules"]
        ],
    )
    page.line(count(len(answer["schedules"]), "schedule"))


def _tables(schedule: dict[str, Any]) -> str:
    if schedule["scope"] == "all":
        return "all"
    return f"{schedule['namespace']}.{schedule['table'] or '*'}"


def _last(schedule: dict[str, Any]) -> str:
    if schedule["running"]:
        return "running"
    return schedule["last_run"]["state"] if schedule["last_run"] else "-"


def _delete(args: Args) -> Request:
    return {
        "operation": "DELETE_SCHEDULE",
        "tenant_id": tenant_of(args),
        "name": args.name,
        "if_exists": args.if_exists,
    }


def _space_create(args: Args) -> Request:
    request: Request = {"operation": "CREATE_NAMESPACE", "tenant_id": tenant_of(args), "namespace": args.name}
    return {**request, "if_not_exists": args.if_not_exists}


def _space_drop(args: Args) -> Request:
    request: Request = {"operation": "DROP_NAMESPACE", "tenant_id": tenant_of(args), "namespace": args.name}
    return {**request, "if_exists": args.if_exists}


def _spaces(answer: Answer, args: Args, page: Page) -> None:
    for name in answer["namespaces"]:
        page.line(name)


COMMANDS = (
    Command(
        "schedule create",
        "Have tables compacted at the times of a cron expression.",
        (
            NAME,
            argument("--cron", required=True, metavar="EXPRESSION", help="when, such as '0 2 * * *'"),
            argument("--timezone", metavar="ZONE", help="by the clock of which place, such as Europe/Zurich; UTC"),
            argument("--delay", metavar="TIME", help="so much later, such as 15m"),
            argument("--table", metavar="TABLE", help="one table; else all of --namespace, or all of the tenant's"),
            argument("--task", metavar="FILE", help="a YAML or JSON file with the task; a plain COMPACT"),
            flag("--disabled", "do not run it by itself"),
            flag("--no-catch-up", "leave out what was due while no service was there"),
            flag("--replace", "take the place of one of this name"),
        ),
        examples.CREATE,
        request=_create,
        show=_created,
    ),
    Command("schedule list", "List schedules.", (), examples.LIST, request=_list, show=_listed),
    RUN,
    Command(
        "schedule delete",
        "Delete a schedule.",
        (NAME, flag("--if-exists", "be content where there is none of this name")),
        examples.DELETE,
        request=_delete,
        show=lambda answer, args, page: page.line("deleted" if answer["schedule_deleted"] else "there is none"),
        question=lambda request: f"The schedule {request['name']} and what is known of its runs are deleted.",
    ),
    Command(
        "namespace create",
        "Create a namespace.",
        (SPACE, flag("--if-not-exists", "be content where it is there already")),
        examples.SPACE_CREATE,
        request=_space_create,
        show=lambda answer, args, page: page.line(
            f"created {args.name}" if answer["namespace_created"] else f"{args.name} is there already"
        ),
    ),
    Command(
        "namespace list",
        "List a tenant's namespaces.",
        (),
        examples.SPACE_LIST,
        request=lambda args: {"operation": "LIST_NAMESPACES", "tenant_id": tenant_of(args)},
        show=_spaces,
    ),
    Command(
        "namespace drop",
        "Drop an empty namespace.",
        (SPACE, flag("--if-exists", "be content where there is none")),
        examples.SPACE_DROP,
        request=_space_drop,
        show=lambda answer, args, page: page.line(
            f"dropped {args.name}" if answer["namespace_dropped"] else f"there is no {args.name}"
        ),
    ),
)
