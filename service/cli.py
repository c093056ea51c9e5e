"""The `firn` command. What cannot start says why in one line on stderr and exits with 1."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    # Imported here, so that `firn --help` does not wait for pydantic.
    from service.settings import SettingsError

    signal.signal(signal.SIGTERM, _terminated)
    try:
        return command(arguments)
    except SettingsError as e:
        _say(f"firn: {' '.join(str(e).split())}")
        return 1
    except KeyboardInterrupt:
        return 130


def serve() -> int:
    """Serve requests until stopped."""
    from service import jars, preflight
    from service.settings import load

    settings = load(os.environ)
    for warning in preflight.check(settings, os.environ):
        _say(f"firn: {warning}")
    fetched = jars.fetch(jars.LOCK, jars.cache_dir(os.environ), _say)

    from service import app

    return app.serve(settings, fetched)


def fetch_jars() -> int:
    """Fetch the jars Spark needs into the cache."""
    from service import jars, preflight

    preflight.check_java(os.environ)
    cache = jars.cache_dir(os.environ)
    fetched = jars.fetch(jars.LOCK, cache, _say)
    _say(f"{len(fetched)} jars are in {cache}")
    return 0


def doctor() -> int:
    """Say whether the service could start here, and what to mend if not."""
    from service import preflight
    from service.settings import load

    healthy = True
    for line in preflight.examine(load(os.environ), os.environ):
        print(f"{'ok  ' if line.ok else 'BAD '} {line.text}")
        healthy = healthy and line.ok
    return 0 if healthy else 1


def openapi() -> int:
    """Print the service's OpenAPI document."""
    from service import app

    print(app.openapi())
    return 0


def compact(arguments: argparse.Namespace) -> int:
    """Have a running service compact one table, or those that are worth it."""
    from service.cli_compact import compact

    return compact(arguments, os.environ)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="firn", description="JSON requests over Apache Iceberg tables.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in {"serve": serve, "jars": fetch_jars, "doctor": doctor, "openapi": openapi}.items():
        text = command.__doc__
        commands.add_parser(name, help=text, description=text).set_defaults(command=lambda _, run=command: run())
    _add_compact(commands.add_parser("compact", help=compact.__doc__, description=f"{compact.__doc__} {_CODES}"))
    return parser


_CODES = (
    "Exits with 0 if all went well, 1 if a table failed, 2 if it was called wrongly, 3 if the service does not answer."
)


def _add_compact(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--all-recommended",
        action="store_true",
        help="every table that RECOMMEND recommends, the most worthwhile first",
    )
    add("--url", help="where the service is; FIRN_URL, or http://localhost:8080")
    add(
        "--tenant",
        action="append",
        help="whose tables, also several, with commas or the option repeated; FIRN_TENANT, or default",
    )
    add("--namespace", help="the table's namespace (default), or with --all-recommended: only those of this one")
    add("--table", help="the table, or with --all-recommended: only this one")
    add("--dry-run", action="store_true", help="say which tables, and compact none")
    add("--json", action="store_true", help="a JSON object per table instead of a line of text")
    parser.set_defaults(command=compact, refuse=parser.error)


def _terminated(_number: int, _frame: object) -> NoReturn:
    # As an exception, so that a download under way is ended too; once it serves, the service takes the signal over.
    sys.exit(128 + signal.SIGTERM)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
