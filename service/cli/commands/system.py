"""Commands about this machine: `serve`, `worker`, `stop`, `doctor`, `jars`, `openapi`, `completion` and `profile …`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from service.cli import profiles
from service.cli.call import Invocation
from service.cli.command import FAILED, OK, Command, UsageError, argument, flag, number
from service.cli.terminal.printer import PageColumn, printer_for

_PROFILE = argument("name", "PROFILE", "the profile's name")
# The arguments of `firn worker`, and the settings that they stand for.
_WORKER_SETTINGS = {
    "interval": "FIRN_DYNAMIC__INTERVAL_S",
    "parallelism": "FIRN_DYNAMIC__PARALLELISM",
    "memory": "FIRN_SPARK__DRIVER_MEMORY",
    "tables": "FIRN_DYNAMIC__TABLES",
}
_PROFILE_COLUMNS = (
    PageColumn("PROFILE", name=True, value=lambda item: item[0]),
    PageColumn("URL", value=lambda item: _without_login(item[1].get("url"))),
    PageColumn("TENANT", value=lambda item: item[1].get("tenant")),
    PageColumn("KEY", value=lambda item: item[1]["api_key"][:15] + "…" if "api_key" in item[1] else None),
)


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


def _work(call: Invocation) -> int:
    from service.host import jars, preflight
    from service.settings import HomeInUse, load

    given = {variable: getattr(call.args, name) for name, variable in _WORKER_SETTINGS.items()}
    environ = {**call.environ, **{variable: str(value) for variable, value in given.items() if value is not None}}
    settings = load(environ)
    for warning in preflight.check(settings, environ, port=False):
        call.notify(warning)
    paths = jars.fetch(jars.LOCK, jars.cache_dir(environ), _report_to(call))

    from service import app

    try:
        return app.work(settings, paths)
    except HomeInUse as e:
        raise HomeInUse(
            f"{e}; a worker beside a service needs a FIRN_HOME of its own, and a ledger and a catalog that they share"
        ) from e


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
    from service.cli.completion.scripts import SCRIPTS

    print(SCRIPTS[call.args.shell], file=call.stdout, end="")
    return OK


def _without_login(url: str | None) -> str | None:
    """An address without its login."""
    from service.cli.connection.targets import parse_address

    return parse_address(url)[0] if url else None


def _add_profile(call: Invocation) -> int:
    args = call.args
    given = {name: getattr(args, name) for name in ("url", "tenant") if getattr(args, name)}
    if args.api_key_stdin:
        given["api_key"] = _read_key(call)
    if not given:
        raise UsageError("the profile says nothing; use --url, --tenant or --api-key-stdin")
    _without_login(given.get("url"))  # raises UsageError if it is not an address
    known = profiles.read(call.environ)
    profiles.write(call.environ, {**known, args.name: given})
    word = "replaced" if args.name in known else "added"
    print(f"{word} {args.name}; use it with -p {args.name}", file=call.stdout, flush=True)
    return OK


def _read_key(call: Invocation) -> str:
    if call.stdin.isatty():
        from getpass import getpass

        key = getpass("API key: ", call.stderr)
    else:
        key = call.stdin.readline()
    if not key.strip().startswith("firn_"):
        raise UsageError("stdin has no API key on its first line; a key begins with firn_")
    return key.strip()


def _list_profiles(call: Invocation) -> int:
    printer = printer_for(call.stdout, call.environ)
    printer.items(_PROFILE_COLUMNS, sorted(profiles.read(call.environ).items()))
    printer.finish()
    return OK


def _remove_profile(call: Invocation) -> int:
    name = call.args.name
    profiles.find(call.environ, name)
    profiles.write(call.environ, {key: value for key, value in profiles.read(call.environ).items() if key != name})
    print(f"removed {name}", file=call.stdout, flush=True)
    return OK


COMMANDS = (
    Command(
        "serve",
        "Serve requests until stopped.",
        (argument("--background", "LOG", "run without a port and stop when idle; LOG is the file of its output"),),
        run=_serve,
        local=True,
    ),
    Command(
        "worker",
        "Refresh dynamic tables until stopped, and serve no requests.",
        (
            number("--interval", "look for changes of their sources every N seconds"),
            number("--parallelism", "refresh N tables at once"),
            argument("--memory", "SIZE", "the memory of Spark, such as 4g"),
            argument(
                "--tables",
                "PATTERNS",
                "only these tables, as tenant.namespace.table, with commas; * stands for any text",
            ),
        ),
        run=_work,
        local=True,
        details="Several workers may share a ledger: a table is refreshed by one of them at a time.",
    ),
    Command(
        "stop",
        "Stop the service of FIRN_HOME, whichever command started it.",
        run=_stop,
        local=True,
    ),
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
    Command(
        "profile add",
        "Add a profile, or replace it: a name for a service and a tenant.",
        (
            _PROFILE,
            argument("--url", "URL", "the service's address"),
            argument("--tenant", "NAME", "the tenant"),
            flag("--api-key-stdin", "read an API key from stdin, and keep it in the profile"),
        ),
        run=_add_profile,
        local=True,
        details="Profiles are in ~/.config/firn/profiles.json, which only you can read. With "
        "`--api-key-stdin < key.txt` a profile has the API key of that file.",
    ),
    Command("profile list", "List profiles.", run=_list_profiles, local=True),
    Command("profile remove", "Remove a profile.", (_PROFILE,), run=_remove_profile, local=True),
)
