"""`firn namespace …`."""

from service.cli.command import Args, Command, Response, argument, flag
from service.cli.terminal.printer import Printer

_NAME = argument("name", "NAMESPACE", "its name", "namespace")


def _show_list(response: Response, args: Args, printer: Printer) -> None:
    for name in response["namespaces"]:
        printer.line(name)


COMMANDS = (
    Command(
        "namespace create",
        "Create a namespace.",
        (_NAME, flag("--if-not-exists", "do nothing if the namespace exists")),
        operation="CREATE_NAMESPACE",
        show=lambda response, args, printer: printer.line(
            f"created {args.name}" if response["namespace_created"] else f"{args.name} already exists"
        ),
    ),
    Command(
        "namespace list",
        "List a tenant's namespaces.",
        operation="LIST_NAMESPACES",
        lists=("namespaces",),
        show=_show_list,
    ),
    Command(
        "namespace drop",
        "Drop an empty namespace.",
        (_NAME, flag("--if-exists", "do nothing if the namespace does not exist")),
        operation="DROP_NAMESPACE",
        show=lambda response, args, printer: printer.line(
            f"dropped {args.name}" if response["namespace_dropped"] else f"{args.name} does not exist"
        ),
    ),
)
