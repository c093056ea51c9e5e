"""What must be true before the service starts; each check says in one line what is wrong and how to mend it."""

import errno
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.jars import java_command
from service.settings import Settings, SettingsError

OLDEST_JAVA = 17
# Java 23 took away what the Hadoop inside Spark 4.1 asks for: "getSubject is not supported".
NEWEST_JAVA = 22
_ENOUGH_DISK = 200 * 2**20
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


@dataclass(frozen=True, slots=True)
class Line:
    """One check's outcome, in words."""

    ok: bool
    text: str


def check(settings: Settings, environ: Mapping[str, str], *, port: bool = True) -> list[str]:
    """Warnings, where the service can start all the same; raises a SettingsError where it cannot."""
    check_java(environ)
    if port:
        check_port(settings.host, settings.port)
    check_home(settings.home)
    warning = disk_warning(settings.home)
    return [warning] if warning else []


def examine(settings: Settings, environ: Mapping[str, str]) -> Iterator[Line]:
    """Every check's outcome, also after one that failed."""
    checks: list[Callable[[], str]] = [
        lambda: f"Java {check_java(environ)} in {java_home(environ)}",
        lambda: check_port(settings.host, settings.port),
        lambda: check_home(settings.home),
    ]
    for run in checks:
        try:
            yield Line(True, run())
        except SettingsError as e:
            yield Line(False, str(e))


def java_home(environ: Mapping[str, str]) -> Path | None:
    """The folder of the Java that PySpark will start, if there is one."""
    found = shutil.which(java_command(environ), path=environ.get("PATH"))
    return Path(found).resolve().parent.parent if found else None


def java_version(text: str) -> int:
    """The feature release that `java -version` printed: 17 for "17.0.15", 8 for "1.8.0_392"; 0 if there is none."""
    match = _VERSION.search(text)
    if not match:
        return 0
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first


def check_java(environ: Mapping[str, str]) -> int:
    """The version of the Java that PySpark will start."""
    remedy = f"install Java {OLDEST_JAVA}, or set JAVA_HOME to one that is there"
    command = java_command(environ)
    named = f"JAVA_HOME is {environ['JAVA_HOME']}, but" if environ.get("JAVA_HOME") else ""
    found = shutil.which(command, path=environ.get("PATH"))
    if not found:
        raise SettingsError(f"{named} there is no {command} there; {remedy}" if named else f"Java is missing; {remedy}")
    try:
        done = subprocess.run([found, "-version"], capture_output=True, text=True, errors="replace", timeout=30)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise SettingsError(f"{found} does not start ({e}); {remedy}") from e
    version = java_version(done.stderr + done.stdout)
    if done.returncode or not version:
        # macOS has a `java` that only says where to find one.
        raise SettingsError(f"{found} is no working Java; {remedy}")
    if not OLDEST_JAVA <= version <= NEWEST_JAVA:
        much = "old" if version < OLDEST_JAVA else "new"
        raise SettingsError(
            f"Java {version} ({found}) is too {much} for Spark, which needs {OLDEST_JAVA} to {NEWEST_JAVA}; {remedy}"
        )
    return version


def check_port(host: str, port: int) -> str:
    """Binds the address for a moment, the way the server will."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as e:
        raise SettingsError(f"FIRN_HOST {host!r} is no address ({e.strerror}); use 127.0.0.1 or 0.0.0.0") from e
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind(address)
            except OSError as e:
                raise SettingsError(_unbindable(e, host, port)) from e
    return f"port {port} on {host} is free"


def _unbindable(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65535 else port - 1
        return f"port {port} on {host} is in use; stop what listens there, or choose another: FIRN_PORT={other}"
    if error.errno == errno.EACCES:
        return f"port {port} is not for this user to open; choose one above 1023: FIRN_PORT=8080"
    return f"FIRN_HOST {host!r} is no address of this machine ({error.strerror}); use 127.0.0.1 or 0.0.0.0"


def check_home(home: Path) -> str:
    """Creates the data folder and writes a file in it: permission bits alone tell a superuser nothing."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".firn-", dir=home) as probe:
            probe.write(b"firn")
            probe.flush()
    except OSError as e:
        why = os.strerror(e.errno) if e.errno else str(e)
        raise SettingsError(
            f"FIRN_HOME {home} cannot be written ({why}); set FIRN_HOME to a folder this user may write"
        ) from e
    return f"FIRN_HOME {home} can be written"


def disk_warning(home: Path, enough: int = _ENOUGH_DISK) -> str | None:
    """A line if little room is left where the data goes."""
    free = shutil.disk_usage(home).free
    if free >= enough:
        return None
    return f"warning: only {free >> 20} MB are free below FIRN_HOME {home}; make room before writing much"
