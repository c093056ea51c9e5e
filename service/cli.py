"""The `firn` command. What cannot start says why in one line on stderr and exits with 1."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    command: Callable[[], int] = arguments.command
    # Imported here, so that `firn --help` does not wait for pydantic.
    from service.settings import SettingsError

    signal.signal(signal.SIGTERM, _terminated)
    try:
        return command()
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="firn", description="JSON requests over Apache Iceberg tables.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in {"serve": serve, "jars": fetch_jars, "doctor": doctor, "openapi": openapi}.items():
        text = command.__doc__
        commands.add_parser(name, help=text, description=text).set_defaults(command=command)
    return parser


def _terminated(_number: int, _frame: object) -> NoReturn:
    # As an exception, so that a download under way is ended too; once it serves, the service takes the signal over.
    sys.exit(128 + signal.SIGTERM)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
