"""`firn namespace …`."""

from service.cli.command import Args, Command, Request, Response, argument, flag
from service.cli.examples import schedules as examples
from service.cli.terminal.printer import Printer
from service.cli.values import single_tenant

_NAME = argument("name", metavar="NAMESPACE", help="its name")


def _create(args: Args) -> Request:
    namespace = {"tenant_id": single_tenant(args), "namespace": args.name}
    return {"operation": "CREATE_NAMESPACE", **namespace, "if_not_exists": args.if_not_exists}


def _drop(args: Args) -> Request:
    namespace = {"tenant_id": single_tenant(args), "namespace": args.name}
    return {"operation": "DROP_NAMESPACE", **namespace, "if_exists": args.if_exists}


def _show_list(response: Response, args: Args, printer: Printer) -> None:
    for name in response["namespaces"]:
        printer.line(name)


COMMANDS = (
    Command(
        "namespace create",
        "Create a namespace.",
        (_NAME, flag("--if-not-exists", "do nothing if the namespace exists")),
        examples.NAMESPACE_CREATE,
        request=_create,
        show=lambda response, args, printer: printer.line(
            f"created {args.name}" if response["namespace_created"] else f"{args.name} is there already"
        ),
    ),
    Command(
        "namespace list",
        "List a tenant's namespaces.",
        (),
        examples.NAMESPACE_LIST,
        request=lambda args: {"operation": "LIST_NAMESPACES", "tenant_id": single_tenant(args)},
        show=_show_list,
    ),
    Command(
        "namespace drop",
        "Drop an empty namespace.",
        (_NAME, flag("--if-exists", "do nothing if the namespace does not exist")),
        examples.NAMESPACE_DROP,
        request=_drop,
        show=lambda response, args, printer: printer.line(
            f"dropped {args.name}" if response["namespace_dropped"] else f"there is no {args.name}"
        ),
    ),
)
