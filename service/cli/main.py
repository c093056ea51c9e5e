"""From a command line to an exit code. Every error is one line on stderr."""

import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, NoReturn, TextIO

from service.cli.call import Invocation, send_request
from service.cli.command import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE, UsageError
from service.cli.connection.jobs import WaitInterrupted
from service.cli.connection.remote import Connection, Unreachable
from service.cli.parser import build_parser, split_words, unrecognised


def main(
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    connection: Connection | None = None,
) -> int:
    """Run a command and return its exit code; a `connection` is used instead of the service that is named."""
    _prepare_streams()
    given = list(sys.argv[1:] if argv is None else argv)
    environ = os.environ if environ is None else environ
    if given[:1] == ["__complete"]:
        from service.cli.completion.words import complete

        with suppress(UsageError):  # a file of profiles that is broken: nothing can be completed from it
            print("\n".join(complete(given[1:], environ)), file=stdout or sys.stdout)
        return OK
    from service import VERSION

    words, options, rest = split_words(given)
    given = [*words, *options, *rest]
    args, unknown = build_parser(VERSION, given).parse_known_args(given)
    if unknown:
        args.error(unrecognised(unknown, args.command))
    if args.command is None:
        args.parser.print_help(sys.stderr)
        return USAGE
    args.default_tenant = environ.get("FIRN_TENANT", "").strip() or "default"
    if getattr(args, "json", False):
        if args.output not in (None, "json"):
            args.error(f"--json and --output {args.output} contradict each other; leave one out")
        args.output = "json"
    streams = (stdin or sys.stdin, stdout or sys.stdout, stderr or sys.stderr)
    if connection is None:
        signal.signal(signal.SIGTERM, _exit_on_signal)
    return _run(Invocation(args.command, args, environ, *streams, connection))


def _prepare_streams() -> None:
    """Open /dev/null for every stream that is closed, and write characters that an encoding lacks as escapes.

    Without this, the next file to be opened would get the number of the closed stream, and what is written to it.
    """
    sys.stdin = sys.stdin or _open_null("r")
    sys.stdout = sys.stdout or _open_null("w")
    sys.stderr = sys.stderr or _open_null("w")
    for out in (sys.stdout, sys.stderr):
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="backslashreplace")


def _open_null(mode: Literal["r", "w"]) -> TextIO:
    opened = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(opened, True)  # child processes need the three streams, too
    return os.fdopen(opened, mode, encoding="utf-8", closefd=False)


def _run(call: Invocation) -> int:
    try:
        if getattr(call.args, "profile", None) is not None:
            from service.cli import profiles

            profiles.apply(call.args, call.environ)
        return (call.command.run or send_request)(call)
    except (UsageError, Unreachable, WaitInterrupted) as e:
        call.notify(str(e))
        return e.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, stopped reading
        _discard_stdout()
        return OK
    except OSError as e:
        call.notify(f"cannot continue: {e.strerror or e}{f': {e.filename}' if e.filename else ''}")
        _discard_stdout()
        return FAILED
    except Exception as e:
        if not _is_settings_error(e):
            raise
        call.notify(" ".join(str(e).split()))
        return FAILED if call.command.local else UNREACHABLE


def _discard_stdout() -> None:
    # Python flushes stdout when it exits, which would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_settings_error(error: Exception) -> bool:
    # The settings take 0.2 s to import. If they are not imported, they raised nothing.
    settings = sys.modules.get("service.settings")
    return settings is not None and isinstance(error, settings.SettingsError)


def _exit_on_signal(_number: int, _frame: object) -> NoReturn:
    # An exception, so that `with` and `finally` clean up. `firn serve` replaces this handler when it serves.
    sys.exit(128 + signal.SIGTERM)
