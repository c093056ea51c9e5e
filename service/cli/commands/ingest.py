"""`firn table ingest` and its neighbours: files of dates into a table that was made from a table file."""

import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from service.cli.call import Invocation
from service.cli.command import FAILED, OK, Args, Request, Response, UsageError, argument, flag, number
from service.cli.commands.tables import DRY_RUN, table_command, table_name
from service.cli.connection.jobs import run_as_job
from service.cli.day_files import upload, upload_range
from service.cli.table_files import dataset_path, date_format, exported_file, read_dataset, shown_path, table_file
from service.cli.terminal.format import format_size, plural
from service.cli.terminal.printer import Printer
from service.cli.values import full_name

_SHOWN_DAYS = 20
_MODE = argument(
    "--mode", None, "replace the rows of the date (default), or add to them", choices=("restate", "append")
)
_FILE_DATASET = argument(
    "--dataset-config", "FILE", "a dataset file for this ingest alone (default: the table's)", None
)


def parse_date(text: str, option: str) -> date:
    try:
        if len(text) == 10:
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise UsageError(f"{option} {text!r} is not a date; write it as 2024-01-31")


def check_dates(request: Request) -> None:
    """Refuse a date that is none in the fields that hold dates."""
    for name in ("date", "from", "to"):
        if name in request:
            parse_date(request[name], f"--{name}")


def is_remote(path: str) -> bool:
    """Whether a path is a URL, which the service reads itself."""
    return "://" in path


def _dataset(args: Args) -> Request:
    return {"dataset": read_dataset(args.dataset_config, "--dataset-config")} if args.dataset_config else {}


def _ingest(call: Invocation) -> int:
    request = call.request()
    parse_date(request["date"], "--date")
    source: str = request["source"]
    request |= _dataset(call.args)
    if not is_remote(source):
        path = _existing(source)
        request["source"] = str(path.absolute())
    with call.connect() as connection, call.progress(f"ingest {full_name(request)}") as on_progress:
        if call.url is None or is_remote(source):
            response = run_as_job(connection, request, on_progress, cancels=True)
        else:
            response = upload(connection, request, path, on_progress)
    return call.show(_advised(response, call.args))


def _existing(path: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise UsageError(f"{path} is not a file; check the path")
    return found


def _advised(response: Response, args: Args) -> Response:
    """A refusal, with what to do about it on the command line."""
    if response["success"] or response["error"]["code"] != "TABLE_NOT_FOUND" or table_file(args) is None:
        return response
    error = response["error"]
    return {
        **response,
        "error": {**error, "message": f"{error['message']}; `firn table create {args.table}` creates it"},
    }


def _show_ingested(response: Response, args: Args, printer: Printer) -> None:
    response = figures(response)
    day = response["date"]
    if response.get("unchanged"):
        printer.success(f"Unchanged: {args.file} is ingested for {day} already")
        return
    rows = plural(response["records_ingested"], "row")
    if args.dry_run:
        printer.line(f"{rows} would be ingested")
    else:
        printer.success(f"Ingested {rows}")
    show_rejects(response, printer)
    show_drift(response.get("drift"), printer)
    if replaced := response.get("records_replaced"):
        would = "would be replaced" if args.dry_run else "replaced"
        printer.line(f"  {plural(replaced, 'row')} of {day} {would}")
    if rewritten := response.get("bytes_rewritten"):
        would = "would be rewritten" if args.dry_run else "rewritten"
        files = plural(response["files_rewritten"], "file")
        printer.line(f"  {files} with other dates, {format_size(rewritten)}, {would}")
    exported = exported_file(args, date.fromisoformat(day))
    printer.line(f"  Destination: {exported or f'{table_name(args)}, ' + response['period']}")
    if response.get("plan_token"):
        printer.text(f"ingest exactly this with --plan {response['plan_token']}")


def figures(response: Response) -> Response:
    """What a response says was done; of a dry run, what would be."""
    return response.get("plan") or response


def show_rejects(response: Response, printer: Printer) -> None:
    """The rejected rows by rule, and where they are."""
    rejected = response.get("records_rejected") or 0
    quarantined = response.get("records_quarantined")
    kept = response.get("quarantine_table")
    where = f", {quarantined:,} quarantined{f' in {kept}' if kept else ''}" if quarantined else ""
    printer.line(f"  {plural(rejected, 'row')} rejected{where}")
    for rule, count in sorted((response.get("rejects") or {}).items(), key=lambda each: (-each[1], each[0])):
        printer.line(f"    {count:,}  {rule}")


def show_drift(drift: Any, printer: Printer) -> None:
    for word in ("new", "missing", "retyped"):
        if found := (drift or {}).get(word):
            names = [f"{name} ({kind})" for name, kind in found.items()] if isinstance(found, dict) else found
            printer.line(f"  {word} in the file: {', '.join(names)}")


def _range(call: Invocation) -> int:
    request = call.request() | _dataset(call.args)
    days = [parse_date(request[name], f"--{name}") for name in ("from", "to")]
    if days[0] > days[1]:
        raise UsageError(f"--from {days[0]} is after --to {days[1]}; exchange them")
    source: str = request["source"]
    local = not is_remote(source)
    if local:
        request["source"] = str(Path(source).expanduser().absolute())
    with call.connect() as connection, call.progress(f"ingest {full_name(request)}") as on_progress:
        if local and call.url is not None:
            response = upload_range(connection, request, days, date_format(call.args), on_progress)
        else:
            response = run_as_job(connection, request, on_progress, cancels=True)
    code = call.show(_advised(response, call.args))
    return FAILED if response["success"] and figures(response).get("days_failed") else code


def _show_range(response: Response, args: Args, printer: Printer) -> None:
    response = figures(response)
    rejects = Counter[str]()
    for each in response["days"]:
        rejects.update(each.get("rejects") or {})
    quarantined = {} if args.dry_run else {"records_quarantined": response.get("records_rejected")}
    response = {"rejects": rejects, **quarantined, **response}
    days = plural(response["days_ingested"], "day")
    rows = plural(response.get("records_ingested") or 0, "row")
    if args.dry_run:
        printer.line(f"{days} would be ingested ({rows})")
    else:
        printer.success(f"Ingested {days} ({rows})")
    show_rejects(response, printer)
    if response.get("days_unchanged"):
        printer.line(f"  {plural(response['days_unchanged'], 'day')} unchanged")
    if missing := [day["date"] for day in response["days"] if day["state"] == "missing"]:
        printer.line(f"  {plural(len(missing), 'day')} without a file: {show_dates(missing)}")
    for day in response["days"]:
        if day["state"] == "failed":
            printer.line(f"  FAILED {day['date']}: {day['error']['code']}: {day['error']['message']}")
    if response["days_ingested"]:
        printer.line(f"  Destination: {table_name(args)}")


def show_dates(dates: list[str]) -> str:
    """Dates, of which consecutive ones are a range."""
    runs: list[list[date]] = []
    for day in sorted(map(date.fromisoformat, dates)):
        if runs and day - runs[-1][-1] == timedelta(days=1):
            runs[-1].append(day)
        else:
            runs.append([day])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    more = len(shown) - _SHOWN_DAYS
    return ", ".join(shown[:_SHOWN_DAYS]) + (f" and {more:,} more" if more > 0 else "")


def _watch(call: Invocation) -> int:
    """Ingest what is new, round after round, until Ctrl-C. A refused file is shown once."""
    args, request = call.args, call.request()
    if args.interval is not None and args.interval < 1:
        raise UsageError(f"--interval {args.interval} is too short; give at least 1 second")
    with call.connect() as connection:
        if not args.once:
            call.notify(f"watching for files of {full_name(request)}; Ctrl-C ends this")
        refused: list[dict[str, Any]] = []
        while True:
            response = connection.send(request)
            if not response["success"]:
                return call.show(_advised(response, args))
            if args.once:
                call.show(response)
                return FAILED if response["files_failed"] else OK
            news = [file for file in response["files"] if file["state"] in ("ingested", "failed")]
            if shown := [file for file in news if file not in refused]:
                call.show({**response, "files": shown})
            refused = [file for file in news if file["state"] == "failed"]
            time.sleep(args.interval or 10)


def _show_watched(response: Response, args: Args, printer: Printer) -> None:
    for file in response["files"]:
        if file["state"] == "ingested":
            printer.success(f"Ingested {shown_path(file['path'])} for {file['date']}")
        elif file["state"] == "failed":
            printer.line(f"FAILED {shown_path(file['path'])}: {file['error']}")
    if args.once:
        counts = [f"{response[f'files_{word}']:,} {word}" for word in ("ingested", "unchanged", "waiting", "failed")]
        printer.line(f"{plural(response['files_found'], 'file')}: {', '.join(counts)}")


def _complete_replay(request: Request, args: Args) -> Request:
    chosen = [name for name in ("date", "from", "run_id") if name in request or (name == "from" and "to" in request)]
    if len(chosen) > 1:
        raise UsageError("--date, --from with --to, and --run exclude each other; use one")
    check_dates(request)
    return request


def _show_replayed(response: Response, args: Args, printer: Printer) -> None:
    response = figures(response)
    read, ingested = (response.get(f"records_{name}") or 0 for name in ("read", "ingested"))
    if args.dry_run:
        printer.line(f"{plural(read, 'quarantined row')} would be replayed, {ingested:,} ingested")
    elif not read:
        printer.line("no quarantined rows to replay")
        return
    else:
        printer.success(f"Replayed {plural(read, 'quarantined row')}: {ingested:,} ingested")
    rejected = {k: v for k, v in response.items() if k in ("records_rejected", "rejects")}
    show_rejects(rejected, printer)


def _accept_drift(call: Invocation) -> int:
    args, request = call.args, call.request()
    path = None
    if args.write:
        path = dataset_path(table_file(args) or {})
        if path is None:
            raise UsageError("--write needs a table file that names its dataset file by ingestion.dataset_config")
    with call.connect() as connection:
        response = connection.send(request)
    if response["success"] and path and not args.dry_run:
        Path(path).write_text(response["dataset"], encoding="utf-8")
    return call.show(response)


def _show_accepted(response: Response, args: Args, printer: Printer) -> None:
    response = figures(response)
    changes = response["changes"]
    if not changes:
        printer.line("no drift to accept")
        return
    if args.dry_run:
        printer.line(f"{plural(len(changes), 'change')} would be accepted")
    else:
        printer.success(f"Accepted {plural(len(changes), 'change')}")
    for change in changes:
        types = " to ".join(str(change[key]) for key in ("from", "to") if change.get(key) is not None)
        printer.line(f"  {change['column']} {change['change']}{types and f': {types}'}")
    if args.dry_run or args.write:
        return
    if path := dataset_path(table_file(args) or {}):
        printer.line(f"  {path} does not have this yet; until it does, `firn table apply` would take it back:")
    printer.text(response["dataset"])


COMMANDS = (
    table_command(
        "table ingest",
        "Ingest the file of a date: it replaces the rows of the date.",
        argument(
            "file", "FILE", "a CSV, JSON lines, Parquet or Arrow file, also .gz or .zst, or an s3:// URL", "source"
        ),
        argument("--date", "DATE", "the date of the rows, such as 2024-01-31", required=True),
        _FILE_DATASET,
        _MODE,
        flag("--accept-drift", "let new, missing and retyped columns change the table"),
        DRY_RUN,
        argument("--plan", "TOKEN", "ingest exactly what a dry run showed, or nothing", "plan_token"),
        operation="INGEST",
        run=_ingest,
        show=_show_ingested,
        details="The same file again changes nothing. With --url or a profile the file is sent to the service.",
    ),
    table_command(
        "table ingest-range",
        "Ingest the files of many dates. A bad day does not stop the others.",
        argument(
            "pattern",
            "FILES",
            "the path with {date} or {year}, {month}, {day} in it: 'data/sales_{date}.csv'",
            "source",
        ),
        argument("--from", "DATE", "the first date, such as 2024-01-01", "from", required=True, dest="first"),
        argument("--to", "DATE", "the last date", "to", required=True, dest="last"),
        _FILE_DATASET,
        _MODE,
        number("--days-per-commit", "how many days share a commit (default: 31)"),
        DRY_RUN,
        operation="INGEST_RANGE",
        run=_range,
        show=_show_range,
        details="Run it again to go on: days that are ingested already are skipped. It exits with 1 if a day failed.",
    ),
    table_command(
        "table watch",
        "Ingest new files of the watched folder, until Ctrl-C.",
        flag("--once", "look once, and end", None),
        number("--interval", "how many seconds to wait between two looks (default: 10)", field=None),
        operation="WATCH",
        run=_watch,
        show=_show_watched,
        details="The table file says which folder: ingestion.watch. A running service watches it, too.",
    ),
    table_command(
        "table replay",
        "Clean quarantined rows again, after the rules were corrected.",
        argument("--date", "DATE", "only rows of this date"),
        argument("--from", "DATE", "only rows from this date on", "from", dest="first"),
        argument("--to", "DATE", "only rows up to this date", "to", dest="last"),
        argument("--run", "ID", "only rows that this run rejected", "run_id"),
        DRY_RUN,
        operation="REPLAY",
        complete=_complete_replay,
        show=_show_replayed,
    ),
    table_command(
        "table accept-drift",
        "Adopt the new, missing or retyped columns of a refused file.",
        argument("--date", "DATE", "the date whose file was refused (default: the last one that was)"),
        flag("--write", "write the new dataset to the dataset file that the table file names", None),
        DRY_RUN,
        operation="ACCEPT_DRIFT",
        run=_accept_drift,
        show=_show_accepted,
    ),
)
