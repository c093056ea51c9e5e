"""Checks before the service starts. Each says in one line what is wrong and how to fix it."""

import errno
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from service.host import presence, process_locks
from service.host.exposure import check_exposure
from service.host.jars import find_java, java_command
from service.settings import Settings, SettingsError

OLDEST_JAVA = 17
# Java 23 removed what the Hadoop in Spark 4.1 calls: "getSubject is not supported".
NEWEST_JAVA = 22
_ENOUGH_DISK = 200 * 2**20
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def check(settings: Settings, environ: Mapping[str, str], *, port: bool = True) -> list[str]:
    """Run every check; returns warnings, and raises `SettingsError` if the service cannot start."""
    check_java(environ)
    if port:
        check_port(settings.host, settings.port)
        check_exposure(settings)
    check_home(settings.home)
    warning = disk_warning(settings.home)
    return [warning] if warning else []


def examine(settings: Settings, environ: Mapping[str, str]) -> Iterator[tuple[bool, str]]:
    """Run every check, even after one failed; yields whether each succeeded, and its result in words."""
    checks: tuple[Callable[[], str], ...] = (
        lambda: f"Java {check_java(environ)} in {java_home(environ)}",
        lambda: _port(settings),
        lambda: check_exposure(settings),
        lambda: check_home(settings.home),
        lambda: _use_of_home(settings.home),
    )
    for run in checks:
        try:
            yield True, run()
        except SettingsError as e:
            yield False, str(e)


def _port(settings: Settings) -> str:
    """The use of the port: nobody's, or that of the service of this home."""
    running = presence.find(settings.home)
    if running is not None and running.address == presence.address_of(settings.host, settings.port):
        return f"port {settings.port} on {settings.host} is used by the service of this home, process {running.pid}"
    return check_port(settings.host, settings.port)


def _use_of_home(home: Path) -> str:
    """The use of the home: nobody's, or that of a service that answers."""
    running = presence.find(home)
    if running is not None:
        return f"FIRN_HOME {home} is used by its service, process {running.pid}, which accepts connections"
    return check_home_is_free(home)


def java_home(environ: Mapping[str, str]) -> Path | None:
    """The folder of the Java that PySpark will start, if Java is installed."""
    found = find_java(environ)
    return found.parent.parent if found else None


def java_version(text: str) -> int:
    """The release in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0_392", 0 if there is none."""
    match = _VERSION.search(text)
    if not match:
        return 0
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first


def check_java(environ: Mapping[str, str]) -> int:
    """The release of the Java that PySpark will start; raises `SettingsError` if it cannot run Spark."""
    advice = f"install Java {OLDEST_JAVA}, or set JAVA_HOME to where it is installed"
    command = java_command(environ)
    named = f"JAVA_HOME is {environ['JAVA_HOME']}, but" if environ.get("JAVA_HOME") else ""
    found = shutil.which(command, path=environ.get("PATH"))
    if not found:
        raise SettingsError(f"{named} there is no {command}; {advice}" if named else f"Java is missing; {advice}")
    try:
        done = subprocess.run([found, "-version"], capture_output=True, text=True, errors="replace", timeout=30)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise SettingsError(f"{found} does not start ({e}); {advice}") from e
    version = java_version(done.stderr + done.stdout)
    if done.returncode or not version:
        # The `java` of macOS only prints where to get one.
        raise SettingsError(f"{found} is not a working Java; {advice}")
    if not OLDEST_JAVA <= version <= NEWEST_JAVA:
        age = "old" if version < OLDEST_JAVA else "new"
        raise SettingsError(
            f"Java {version} ({found}) is too {age} for Spark, which needs {OLDEST_JAVA} to {NEWEST_JAVA}; {advice}"
        )
    return version


def check_port(host: str, port: int) -> str:
    """Bind the address for a moment, as the server will; raises `SettingsError` if that fails."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as e:
        raise SettingsError(f"FIRN_HOST {host!r} is not an address ({e.strerror}); use 127.0.0.1 or 0.0.0.0") from e
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
        return f"this user may not open port {port}; choose one above 1023: FIRN_PORT=8080"
    return f"FIRN_HOST {host!r} is not an address of this machine ({error.strerror}); use 127.0.0.1 or 0.0.0.0"


def check_home(home: Path) -> str:
    """Create the data folder and write a file in it: for a superuser, permission bits mean nothing."""
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


def check_home_is_free(home: Path) -> str:
    """Raises `HomeInUse` if a process owns the data folder."""
    if not process_locks.is_free(home):
        raise process_locks.in_use(home)
    return f"FIRN_HOME {home} is not in use"


def disk_warning(home: Path, enough: int = _ENOUGH_DISK) -> str | None:
    """A warning if there is little disk space left for the data."""
    free = shutil.disk_usage(home).free
    if free >= enough:
        return None
    return f"warning: only {free >> 20} MB are free below FIRN_HOME {home}; make room before writing much"
