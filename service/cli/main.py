"""From a command line to an exit code. What goes wrong is one line on stderr."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn, TextIO

from service.cli.call import Call, perform
from service.cli.catalogue import COMMANDS, GROUPS
from service.cli.command import FAILED, INTERRUPTED, UNREACHABLE, USAGE, Misused
from service.cli.parser import in_order, parser_of, unknown
from service.cli.remote import Door, Unreachable
from service.cli.streams import prepare

_TENANT = "default"


def main(
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    door: Door | None = None,
) -> int:
    """Run a command; its exit code. With a `door` it asks that service and no other."""
    prepare()
    given = list(sys.argv[1:] if argv is None else argv)
    environ = os.environ if environ is None else environ
    if given[:1] == ["__complete"]:
        from service.cli.complete import complete

        print("\n".join(complete(given[1:])))
        return 0
    from service import VERSION

    words, options, rest = in_order(given, COMMANDS)
    given = [*words, *options, *rest]
    args, left = parser_of(COMMANDS, GROUPS, VERSION, given).parse_known_args(given)
    if left:
        args.refuse(unknown(left, args.command))
    if args.command is None:
        args.asked.print_help(sys.stderr)
        return USAGE
    args.usual_tenant = environ.get("FIRN_TENANT", "").strip() or _TENANT
    call = Call(args.command, args, environ, stdin or sys.stdin, stdout or sys.stdout, stderr or sys.stderr, door)
    if door is None:
        signal.signal(signal.SIGTERM, _terminated)
    return _run(call)


def _run(call: Call) -> int:
    try:
        return (call.command.run or perform)(call)
    except Misused as e:
        call.say(str(e))
        return USAGE
    except Unreachable as e:
        call.say(str(e))
        return UNREACHABLE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read along has enough.
        _leave_stdout()
        return 0
    except OSError as e:
        call.say(f"cannot go on: {e.strerror or e}{f': {e.filename}' if e.filename else ''}")
        _leave_stdout()
        return FAILED
    except Exception as e:
        code = _unable(e)
        if code is None:
            raise
        call.say(" ".join(str(e).split()))
        return FAILED if call.command.local else code


def _leave_stdout() -> None:
    # What is still to be written would fail again as this process ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unable(error: Exception) -> int | None:
    """The exit code for what could not be started; None for a defect."""
    # What was not imported has not been raised.
    settings = sys.modules.get("service.settings")
    if settings is not None and isinstance(error, settings.SettingsError):
        return UNREACHABLE
    return None


def _terminated(_number: int, _frame: object) -> NoReturn:
    # As an exception, so that a download under way is ended too; once it serves, the service takes the signal over.
    sys.exit(128 + signal.SIGTERM)
