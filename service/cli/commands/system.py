"""`firn serve`, `stop` and what else has to do with this machine rather than with tables."""

from collections.abc import Sequence
from pathlib import Path

from service.cli.call import Call
from service.cli.command import FAILED, WELL, Command, argument, flag
from service.cli.examples import system as examples


def _serve(call: Call) -> int:
    from service import jars, preflight
    from service.settings import load

    settings = load(call.environ)
    log: str | None = call.args.background
    for warning in preflight.check(settings, call.environ, port=log is None):
        call.say(warning)
    fetched = jars.fetch(
        jars.LOCK, jars.cache_dir(call.environ), lambda line: print(line, file=call.stderr, flush=True)
    )

    from service import app

    return app.serve(settings, fetched, None if log is None else Path(log))


def _stop(call: Call) -> int:
    from service.cli import background
    from service.settings import load

    settings = load(call.environ)
    stopped = background.stop(settings, by_hand_too=call.args.force, say=call.say)
    text = "stopped" if stopped else f"no service of FIRN_HOME {settings.home} is running"
    print(text, file=call.stdout, flush=True)
    return WELL


def _jars(call: Call) -> int:
    from service import jars, preflight

    def say(line: str) -> None:
        print(line, file=call.stderr, flush=True)

    preflight.check_java(call.environ)
    cache = jars.cache_dir(call.environ)
    fetched = jars.fetch(jars.LOCK, cache, say)
    say(f"{len(fetched)} jars are in {cache}")
    if not call.args.fetch_only:
        from service import classes

        classes.prepare(fetched, call.environ, lambda options: _rehearse(fetched, options), say)
    return WELL


def _rehearse(jars: list[Path], java_options: Sequence[str]) -> None:
    from service import app  # seconds, of which most calls need none

    app.rehearse(jars, java_options)


def _doctor(call: Call) -> int:
    from service import preflight
    from service.settings import load

    healthy = True
    for line in preflight.examine(load(call.environ), call.environ):
        print(f"{'ok  ' if line.ok else 'BAD '} {line.text}", file=call.stdout)
        healthy = healthy and line.ok
    return WELL if healthy else FAILED


def _openapi(call: Call) -> int:
    from service import app

    print(app.openapi(), file=call.stdout)
    return WELL


def _completion(call: Call) -> int:
    from service.cli.complete import SCRIPTS

    print(SCRIPTS[call.args.shell], file=call.stdout, end="")
    return WELL


SERVE = Command(
    "serve",
    "Serve requests until stopped.",
    (
        argument(
            "--background",
            metavar="LOG",
            help="as commands start it: without a port, ending by itself; LOG is where its output goes",
        ),
    ),
    examples.SERVE,
    run=_serve,
    local=True,
)
STOP = Command(
    "stop",
    "End the service that commands started in the background.",
    (flag("--force", "end it also where it was started by hand"),),
    examples.STOP,
    run=_stop,
    local=True,
)
COMMANDS = (
    Command("doctor", "Say whether the service could start here.", (), examples.DOCTOR, run=_doctor, local=True),
    Command(
        "jars",
        "Fetch the jars Spark needs, and prepare its classes for quick starts.",
        (flag("--fetch-only", "leave the classes as they are: a start works, and takes longer"),),
        examples.JARS,
        run=_jars,
        local=True,
    ),
    Command("openapi", "Print the service's OpenAPI document.", (), examples.OPENAPI, run=_openapi, local=True),
    Command(
        "completion",
        "Print a script that completes this command in a shell.",
        (argument("shell", choices=("bash", "zsh", "fish"), help="which shell"),),
        examples.COMPLETION,
        run=_completion,
        local=True,
    ),
)
