"""`firn serve`, `stop`, `doctor`, `jars`, `openapi` and `completion`: commands about this machine."""

from collections.abc import Callable, Sequence
from pathlib import Path

from service.cli.call import Invocation
from service.cli.command import FAILED, OK, Command, argument, flag


def _serve(call: Invocation) -> int:
    from service.host import jars, preflight
    from service.settings import load

    settings = load(call.environ)
    log: str | None = call.args.background
    for warning in preflight.check(settings, call.environ, port=log is None):
        call.notify(warning)
    paths = jars.fetch(jars.LOCK, jars.cache_dir(call.environ), _report_to(call))

    from service import app

    return app.serve(settings, paths, None if log is None else Path(log))


def _stop(call: Invocation) -> int:
    from service.cli.connection import background
    from service.settings import load

    settings = load(call.environ)
    stopped = background.stop(settings, call.notify)
    text = "stopped" if stopped else f"no service of FIRN_HOME {settings.home} is running"
    print(text, file=call.stdout, flush=True)
    return OK


def _jars(call: Invocation) -> int:
    from service.host import jars, preflight

    report = _report_to(call)
    preflight.check_java(call.environ)
    cache = jars.cache_dir(call.environ)
    paths = jars.fetch(jars.LOCK, cache, report)
    report(f"{len(paths)} jars are in {cache}")
    if not call.args.fetch_only:
        from service.host import class_archive

        def rehearse(java_options: Sequence[str]) -> None:
            from service import app  # takes seconds to import, and most calls find an archive

            app.rehearse(paths, java_options)

        class_archive.prepare(paths, call.environ, rehearse, report)
    return OK


def _report_to(call: Invocation) -> Callable[[str], None]:
    return lambda line: print(line, file=call.stderr, flush=True)


def _doctor(call: Invocation) -> int:
    from service.host import preflight
    from service.settings import load

    healthy = True
    for ok, text in preflight.examine(load(call.environ), call.environ):
        print(f"{'ok  ' if ok else 'BAD '} {text}", file=call.stdout)
        healthy = healthy and ok
    return OK if healthy else FAILED


def _openapi(call: Invocation) -> int:
    from service import app

    print(app.openapi(), file=call.stdout)
    return OK


def _completion(call: Invocation) -> int:
    from service.cli.complete import SCRIPTS

    print(SCRIPTS[call.args.shell], file=call.stdout, end="")
    return OK


SERVE = Command(
    "serve",
    "Serve requests until stopped.",
    (argument("--background", "LOG", "run without a port and stop when idle; LOG is the file of its output"),),
    run=_serve,
    local=True,
)
STOP = Command(
    "stop",
    "Stop the service of FIRN_HOME, whichever command started it.",
    run=_stop,
    local=True,
)
COMMANDS = (
    Command("doctor", "Check whether the service can start on this machine.", run=_doctor, local=True),
    Command(
        "jars",
        "Fetch the jars that Spark needs, and prepare its classes for faster starts.",
        (flag("--fetch-only", "do not prepare the classes; starts then take longer"),),
        run=_jars,
        local=True,
    ),
    Command("openapi", "Print the service's OpenAPI document.", run=_openapi, local=True),
    Command(
        "completion",
        "Print a completion script for a shell.",
        (argument("shell", None, "the shell", choices=("bash", "zsh", "fish")),),
        run=_completion,
        local=True,
    ),
)
