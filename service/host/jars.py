"""The Java libraries that Spark needs: listed in `config/jars.lock`, fetched with PySpark's own Ivy, verified, cached.

A stamp beside each jar has the hash and the size that were verified, so that later starts do not read the jars.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from service.host.process_locks import locked
from service.settings import ROOT, SettingsError

LOCK = ROOT / "config" / "jars.lock"
_LINE = re.compile(r"([^\s:]+):([^\s:]+):([^\s:]+) ([0-9a-f]{64})")
_TRIES = 3
_TIMEOUT_S = 900


class JarError(SettingsError):
    """A jar cannot be fetched, or is not the one that the lock file names."""


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def stamp_name(self) -> str:
        return f"{self.file_name}.stamp"


Report = Callable[[str], None]
Download = Callable[[Jar, Path], None]


def read_lock(path: Path = LOCK) -> list[Jar]:
    """The jars of a lock file, which has lines of the form `group:artifact:version sha256`."""
    try:
        lines = path.read_text().splitlines()
    except OSError as e:
        raise SettingsError(f"cannot read {path} ({e.strerror}); restore it from the repository") from e
    jars = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if match := _LINE.fullmatch(line):
            jars.append(Jar(*match.groups()))
        elif line and not line.startswith("#"):
            raise SettingsError(f"{path}, line {number} is not `group:artifact:version sha256`: {line[:100]!r}")
    return jars


def cache_dir(environ: Mapping[str, str]) -> Path:
    """The folder of the jars: `FIRN_CACHE`, or a folder in the user's cache."""
    if named := environ.get("FIRN_CACHE"):
        return Path(named).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "firn" / "jars"


def java_command(environ: Mapping[str, str]) -> str:
    """The Java that PySpark will start: that of JAVA_HOME, or else the one on PATH."""
    home = environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def find_java(environ: Mapping[str, str]) -> Path | None:
    """The program that the Java command starts, if it is installed."""
    found = shutil.which(java_command(environ), path=environ.get("PATH"))
    return Path(found).resolve() if found else None


def ivy(jar: Jar, folder: Path) -> None:
    """Download a jar into a folder with the Ivy that comes with PySpark; raises `JarError`."""
    own_jars = spark_jars("ivy-*.jar")
    if not own_jars:
        raise SettingsError("PySpark is not installed here; run `make serve`, which installs it")
    command = [java_command(os.environ), "-jar", str(own_jars[0]), "-cache", str(folder / "ivy")]
    # Without -types, the files of sources and documentation would overwrite the jar: they have the same name.
    command += ["-notransitive", "-types", "jar", "-dependency", jar.group, jar.artifact, jar.version]
    command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    except OSError as e:
        raise JarError(f"Java does not start ({e.strerror}); install Java 17 or set JAVA_HOME") from e
    except subprocess.TimeoutExpired as e:
        raise JarError(f"it took longer than {_TIMEOUT_S} s") from e
    if done.returncode or not (folder / jar.file_name).exists():
        raise JarError(_reason(done.stdout + "\n" + done.stderr))


def fetch(
    lock: Path,
    cache: Path,
    report: Report = print,
    download: Download = ivy,
    pause: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """Fetch the missing jars of a lock file and return the paths of all. Several processes may do so at once."""
    jars = read_lock(lock)
    paths = [cache / jar.file_name for jar in jars]
    if all(_is_stamped(jar, cache) for jar in jars):
        return paths
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked_cache(cache, report):
            for number, jar in enumerate(jars, start=1):
                if not _is_stamped(jar, cache) and not _adopt(jar, cache):
                    report(f"fetching {jar.file_name} ({number} of {len(jars)}) …")
                    _fetch_one(jar, cache, report, download, pause)
    except OSError as e:
        raise JarError(
            f"the jar cache {cache} cannot be written ({e.strerror}); set FIRN_CACHE to another folder"
        ) from e
    return paths


def locate(lock: Path, cache: Path) -> list[Path]:
    """The paths of the jars of a lock file; raises `SettingsError` if one has not been fetched."""
    jars = read_lock(lock)
    missing = [jar.file_name for jar in jars if not _is_stamped(jar, cache)]
    if missing:
        raise SettingsError(f"the jar cache {cache} lacks {', '.join(missing)}; run `make jars`")
    return [cache / jar.file_name for jar in jars]


def _fetch_one(jar: Jar, cache: Path, report: Report, download: Download, pause: Callable[[float], None]) -> None:
    for attempt in range(1, _TRIES + 1):
        # A new folder for each try, so that no partial file and no bad state of Ivy survives a failure.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as folder:
            try:
                download(jar, Path(folder))
                _accept(jar, Path(folder) / jar.file_name, cache)
                return
            except JarError as e:
                if attempt == _TRIES:
                    raise JarError(f"cannot fetch {jar.file_name}: {e} (tried {_TRIES} times)") from e
                report(f"  {e}; trying again")
        pause(2.0**attempt)


def _accept(jar: Jar, file: Path, cache: Path) -> None:
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != jar.sha256:
        raise JarError(f"its sha256 is {found}, not the {jar.sha256} of {LOCK.name}")
    size = file.stat().st_size
    file.replace(cache / jar.file_name)
    stamp = file.with_suffix(".stamp")
    stamp.write_text(f"{jar.sha256} {size}\n")
    stamp.replace(cache / jar.stamp_name)


def _adopt(jar: Jar, cache: Path) -> bool:
    """Stamp a jar that somebody copied here, if it is the right one."""
    try:
        _accept(jar, cache / jar.file_name, cache)
    except (JarError, FileNotFoundError):
        return False
    return True


def _is_stamped(jar: Jar, cache: Path) -> bool:
    try:
        size = (cache / jar.file_name).stat().st_size
        return (cache / jar.stamp_name).read_text() == f"{jar.sha256} {size}\n"
    except OSError:
        return False


def locked_cache(cache: Path, report: Report) -> AbstractContextManager[None]:
    """Let only this process add to the cache during a `with` block."""
    return locked(cache / ".lock", report, "waiting for another process that is fetching jars …")


def spark_jars(pattern: str = "*.jar") -> list[Path]:
    """The jars that are part of PySpark."""
    spec = importlib.util.find_spec("pyspark")
    folders = (spec and spec.submodule_search_locations) or ()
    return sorted(jar for folder in folders for jar in Path(folder, "jars").glob(pattern))


def _reason(output: str) -> str:
    """The line of Ivy's output that says most about a failure."""
    lines = [line.strip(" :\t") for line in output.splitlines() if line.strip(" :\t=-.")]
    words = ("not found", "UnknownHost", "refused", "timed out", "Exception", "rror")
    found = next((line for word in words for line in lines if word in line), lines[-1] if lines else "no reason given")
    return found[:200]
