"""One invocation of a command: its arguments, its streams and its connection."""

import codecs
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

from service.cli.command import FAILED, OK, UNCONFIRMED, Args, Command, Request, Response
from service.cli.connection.jobs import run_as_job
from service.cli.connection.lists import whole_list
from service.cli.connection.remote import SHORT_PAUSES_S, Connection
from service.cli.terminal.cells import escape
from service.cli.terminal.printer import printer_for
from service.cli.terminal.progress import OnProgress, progress_line
from service.cli.values import address_of, full_name, single_tenant

Body = Callable[[Request], bytes | None]
"""The body of a request as it is sent; None for the JSON of its fields."""


@dataclass(frozen=True)
class Invocation:
    """A command, its arguments, and everything outside this process that it uses."""

    command: Command
    args: Args
    environ: Mapping[str, str]
    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    connection: Connection | None = None
    """Used instead of the service that the arguments name."""

    def request(self) -> Request:
        """The request of the command, from its declaration and its arguments."""
        command, args = self.command, self.args
        address = command.address(args) if command.address else {"tenant_id": single_tenant(args)}
        request = {"operation": command.operation, **command.constants, **address}
        for each in command.arguments:
            request |= each.fields(args)
        return command.complete(request, args)

    @property
    def url(self) -> str | None:
        """The address of the service that the arguments or the environment name; None for that of FIRN_HOME."""
        return self.args.url or self.environ.get("FIRN_URL") or None

    def notify(self, text: str) -> None:
        """Print a line that is not part of the result, on stderr. The lines of a file that it quotes follow it."""
        first, *more = text.rstrip("\n").split("\n")
        print(f"firn: {escape(first)}", *map(escape, more), sep="\n", file=self.stderr, flush=True)

    @contextmanager
    def connect(
        self, needs_spark: bool | None = None, pauses_s: tuple[float, ...] | None = None, *, uploads: bool = False
    ) -> Iterator[Connection]:
        """A connection to the service that the arguments name, for the duration of a `with` block."""
        if self.connection is not None:
            yield self.connection
            return
        from service.cli.connection.targets import ConnectionOptions, api_key_of, open_connection

        options = ConnectionOptions(
            url=self.url,
            needs_spark=self.command.needs_spark if needs_spark is None else needs_spark,
            background=not self.args.no_background,
            pauses_s=SHORT_PAUSES_S if pauses_s is None else pauses_s,
            uploads=uploads,
            api_key=api_key_of(getattr(self.args, "api_key", None), self.environ),
        )
        with closing(open_connection(options, self.environ, self.notify)) as connection:
            yield connection

    def confirms(self, question: str) -> bool:
        """Whether the reply to the question is yes."""
        if not self.stdin.isatty():
            self.notify(f"not done: {question} There is no terminal to ask on; use --yes")
            return False
        self.stderr.write(f"{escape(question)} Type yes to do it: ")
        self.stderr.flush()
        reply = ""
        try:
            reply = self.stdin.readline()
        finally:
            if not reply.endswith("\n"):  # Ctrl-C or Ctrl-D: end the line of the question
                self.stderr.write("\n")
        if reply.strip().lower() in ("yes", "y"):
            return True
        self.notify("not done")
        return False

    def show(self, response: Response) -> int:
        """Print a response and return the exit code."""
        if self.output in ("json", "yaml"):
            self.print_data(response)
            return OK if response["success"] else FAILED
        if not response["success"]:
            error = response["error"]
            self.notify(f"{error['code']}: {error['message']}")
            if error["code"] == "UNAUTHENTICATED":
                self.notify("commands send the API key of FIRN_API_KEY, or of a profile (`firn profile add --help`)")
            return FAILED
        if self.output == "csv":
            self.print_data(response)
            return OK
        printer = printer_for(self.stdout, self.environ)
        self.command.show(response, self.args, printer)
        printer.finish()
        for warning in response.get("warnings") or ():
            self.notify(warning)
        return OK

    @property
    def output(self) -> str:
        """The format of the output: one of FORMATS."""
        return self.args.output or "table"

    def print_data(self, data: dict[str, Any], *, heading: bool = True) -> None:
        """Print a response, or part of one, in the format for other programs that was chosen."""
        if self.output == "json":
            is_utf_8 = codecs.lookup(self.stdout.encoding or "utf-8").name == "utf-8"
            text = json.dumps(data, ensure_ascii=not is_utf_8, separators=(",", ":")) + "\n"
        else:
            from service.cli.terminal.export import to_csv, to_yaml

            text = to_yaml(data) if self.output == "yaml" else to_csv(data, heading=heading)
        self.stdout.write(text)
        self.stdout.flush()

    def progress(self, what: str) -> AbstractContextManager[OnProgress]:
        """Show a job's progress during a `with` block, if stderr is a terminal."""
        if self.output != "table" or not self.stderr.isatty():
            return nullcontext(lambda job: None)
        return progress_line(self.stderr, what)


def failure(code: str, message: str) -> Response:
    """The response to a request that failed before it was sent."""
    return {"success": False, "error": {"code": code, "message": message, "retryable": False}}


def check(call: Invocation, connection: Connection, request: Request, body: Body) -> Response | None:
    """The response to a request that nobody need be asked about: it would fail, or do nothing. None for any other."""
    command = call.command
    if command.check is not None:
        return command.check(request, connection)
    if any(each.name == "--dry-run" for each in command.arguments):
        preview = {**request, "dry_run": True}
        response = _sent(call, connection, preview, body)
    elif "table" in request:
        response = connection.send({"operation": "DESCRIBE_TABLE", **address_of(request)})
    else:
        return None
    if response["success"]:
        return None
    if request.get("if_exists") and response["error"]["code"] == "TABLE_NOT_FOUND":
        nothing = {"table_dropped": False, "table_existed": False, "purged": False}  # as DROP_TABLE responds
        return {"success": True, **nothing, "metadata": response.get("metadata", {})}
    return response


def send_request(call: Invocation, body: Body = lambda request: None) -> int:
    """Send the command's request, show the response and return the exit code.

    If it may lose data, its user is asked first, unless it would fail. `body` writes a request that is more than JSON
    made of its fields.
    """
    command, request = call.command, call.request()
    question = command.question(request) if command.question and not request.get("dry_run") else None
    with call.connect() as connection:
        if question and not call.args.yes:
            early = check(call, connection, request, body)
            if early is not None:
                return call.show(early)
            if not call.confirms(question):
                return UNCONFIRMED
        response = _sent(call, connection, request, body)
    return call.show(response)


def _sent(call: Invocation, connection: Connection, request: Request, body: Body) -> Response:
    """The response to a request: to that of a job, when it has ended; to that for a list, with all its pages."""
    command = call.command
    preview = request.get("dry_run") or request.get("estimate")
    if not command.job or (preview and not command.long_preview):
        if command.lists:
            return whole_list(connection.send, request, command.lists)
        return connection.send(request, body=body(request))
    with call.progress(f"{command.words[-1]} {full_name(request)}") as on_progress:
        if not command.lists:
            return run_as_job(connection, request, on_progress, cancels=command.cancels or bool(preview))
        # A list is only read, so its requests take no key.
        job = partial(run_as_job, connection, on_progress=on_progress, cancels=command.cancels, keyed=False)
        return whole_list(job, request, command.lists)
