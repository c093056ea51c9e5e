"""`firn load`: append a file of any size to a table, in one commit."""

from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Command, Request, Response, UsageError, argument, flag
from service.cli.connection.jobs import upload_as_job
from service.cli.connection.remote import Connection
from service.cli.files import table_argument
from service.cli.loading import LoadFile, read_file
from service.cli.terminal.format import plural
from service.cli.terminal.printer import Printer
from service.cli.terminal.progress import OnProgress, report
from service.cli.values import address_of, full_name


def _load(call: Invocation) -> int:
    args = call.args
    file = read_file(args.file, args.format)
    args.table = args.table or file.table
    described = table_argument(args)
    if "config" in described:
        raise UsageError(f"{args.table} is a table file; `firn table ingest` adds the file of a date to its table")
    address = address_of(described)
    with call.connect(uploads=True) as connection, call.progress(f"load {full_name(address)}") as on_progress:
        if args.create:
            schema: Any = described.get("schema") or {"fields": file.fields()}
            more: dict[str, Any] = {key: described[key] for key in ("partition", "properties") if key in described}
            create: Request = {"operation": "CREATE_TABLE", **address, "schema": schema, **more, "if_not_exists": True}
            created = connection.send(create)
            if not created["success"]:
                return call.show(created)
        response = _send(connection, file, address, on_progress)
    return call.show(response)


def _send(connection: Connection, file: LoadFile, address: dict[str, str], on_progress: OnProgress) -> Response:
    """Send the file, wait until it is in the table, and return the response."""
    total = file.size

    def show(done: int, rows: int) -> None:
        report(on_progress, "sending", records=rows, bytes_done=done, bytes_total=total)

    return upload_as_job(connection, address, "records", file.media_type, lambda: file.chunks(show), on_progress)


def _show(response: Response, args: Args, printer: Printer) -> None:
    printer.line(f"{plural(response['records_written'], 'row')} loaded")


COMMANDS = (
    Command(
        "load",
        "Add the rows of a file of any size to a table, in one commit.",
        (
            argument("file", "FILE", "a CSV, NDJSON, Parquet or Arrow file; CSV and NDJSON may end in .gz or .zst"),
            argument(
                "table", "TABLE|FILE", "the table, or its YAML or JSON file (default: the name of FILE)", nargs="?"
            ),
            argument(
                "--format",
                None,
                "the format, if the name does not say it",
                choices=("csv", "ndjson", "arrow", "parquet"),
            ),
            flag("--create", "create the table if it does not exist, with the columns of FILE"),
        ),
        operation="WRITE",
        run=_load,
        show=_show,
        details="All rows are added, or none. The types of a new table's columns are those of a Parquet or Arrow file, "
        "or those that the first lines of a CSV or NDJSON file look like.",
    ),
)
