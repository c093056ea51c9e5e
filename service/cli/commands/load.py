"""`firn load`: add a file of any size to a table, or upsert it, in one commit."""

from collections.abc import Iterator
from typing import Any

from service.cli.call import Invocation
from service.cli.command import Args, Command, Request, Response, UsageError, argument, flag
from service.cli.commands.edits import counted
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
    parameters = _parameters(args)
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
        response = _send(connection, file, address, parameters, on_progress)
    return call.show(response)


def _parameters(args: Args) -> dict[str, str]:
    """The parameters of the upload: of an upsert, if that is asked for."""
    needs = {"--key-cols": args.key_cols, "--last-wins": args.last_wins, "--replace": args.replace}
    if not args.upsert:
        if given := next((option for option, value in needs.items() if value), None):
            raise UsageError(f"{given} needs --upsert")
        return {}
    wanted = {
        "mode": "upsert",
        "key_cols": args.key_cols,
        "on_duplicate": "last" if args.last_wins else None,
        "on_multiple": "replace" if args.replace else None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _send(
    connection: Connection,
    file: LoadFile,
    address: dict[str, str],
    parameters: dict[str, str],
    on_progress: OnProgress,
) -> Response:
    """Send the file, wait until it is in the table, and return the response."""
    total = file.size

    def show(done: int, rows: int) -> None:
        report(on_progress, "sending", records=rows, bytes_done=done, bytes_total=total)

    def chunks() -> Iterator[bytes]:
        return file.chunks(show)

    return upload_as_job(connection, address, "records", file.media_type, chunks, on_progress, parameters=parameters)


def _show(response: Response, args: Args, printer: Printer) -> None:
    loaded = response.get("records_written")
    printer.line(counted(response) if loaded is None else f"{plural(loaded, 'row')} loaded")


COMMANDS = (
    Command(
        "load",
        "Add the rows of a file of any size to a table, or upsert them, in one commit.",
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
            flag("--upsert", "update the rows that have the same key, and insert the others"),
            argument(
                "--key-cols",
                "COLUMNS",
                "with --upsert: the columns that identify a row, with commas (default: the primary key)",
            ),
            flag("--last-wins", "with --upsert: of rows of FILE with the same key, use the last"),
            flag("--replace", "with --upsert: of several rows of the table with one key, keep only the newest"),
        ),
        operation="WRITE",
        run=_load,
        show=_show,
        details="All rows are added, or none. With --upsert, columns that FILE lacks keep their values. The types of a "
        "new table's columns are those of a Parquet or Arrow file, or those that the first lines of a CSV or NDJSON "
        "file look like.",
    ),
)
