"""The Java libraries Spark needs: named in `config/jars.lock`, fetched once by PySpark's own Ivy, verified, kept.

Beside each jar lies a stamp with the hash and the size it had when it was verified, so that a later start reads no jar.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.settings import ROOT, SettingsError

LOCK = ROOT / "config" / "jars.lock"
_LINE = re.compile(r"([^\s:]+):([^\s:]+):([^\s:]+) ([0-9a-f]{64})")
_TRIES = 3
_TIMEOUT_S = 900


class JarError(SettingsError):
    """A jar that cannot be had, or is not the one the lock file names."""


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def read_lock(path: Path = LOCK) -> list[Jar]:
    """The jars that a lock file names, one `group:artifact:version sha256` a line."""
    try:
        lines = path.read_text().splitlines()
    except OSError as e:
        raise SettingsError(f"cannot read {path} ({e.strerror}); restore it from the repository") from e
    jars = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if not match:
            raise SettingsError(f"{path}, line {number} is not `group:artifact:version sha256`: {line.strip()[:100]!r}")
        jars.append(Jar(*match.groups()))
    return jars


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Where jars are kept: `FIRN_CACHE`, else the user's cache folder."""
    if named := environ.get("FIRN_CACHE"):
        return Path(named).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "firn" / "jars"


def java_command(environ: Mapping[str, str]) -> str:
    """The Java that PySpark will start: of JAVA_HOME if that is set, else the one on PATH."""
    home = environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def ivy(jar: Jar, folder: Path) -> None:
    """Downloads one jar into a folder with the Ivy that comes with PySpark."""
    pattern = f"{folder}/[artifact]-[revision].[ext]"
    command = [java_command(os.environ), "-jar", str(_ivy_jar()), "-cache", str(folder / "ivy")]
    # Sources and documentation share the name of the jar: without -types they would overwrite it.
    command += ["-notransitive", "-types", "jar", "-dependency", jar.group, jar.artifact, jar.version]
    try:
        done = subprocess.run(
            [*command, "-retrieve", pattern], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except OSError as e:
        raise JarError(f"Java does not start ({e.strerror}); install Java 17 or set JAVA_HOME") from e
    except subprocess.TimeoutExpired as e:
        raise JarError(f"it took longer than {_TIMEOUT_S} s") from e
    if done.returncode or not (folder / jar.file_name).exists():
        raise JarError(_reason(done.stdout + "\n" + done.stderr))


def fetch(
    lock: Path,
    cache: Path,
    report: Callable[[str], None] = print,
    download: Callable[[Jar, Path], None] = ivy,
    pause: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """The verified jars of a lock file, the missing ones fetched first; any number of processes may ask at once."""
    jars = read_lock(lock)
    paths = [cache / jar.file_name for jar in jars]
    if all(_is_stamped(jar, cache) for jar in jars):
        return paths
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with exclusive(cache, report):
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
    """The jars of a lock file, which must have been fetched before."""
    jars = read_lock(lock)
    missing = [jar.file_name for jar in jars if not _is_stamped(jar, cache)]
    if missing:
        raise SettingsError(f"the jar cache {cache} lacks {', '.join(missing)}; run `make jars`")
    return [cache / jar.file_name for jar in jars]


def _fetch_one(
    jar: Jar,
    cache: Path,
    report: Callable[[str], None],
    download: Callable[[Jar, Path], None],
    pause: Callable[[float], None],
) -> None:
    for attempt in range(1, _TRIES + 1):
        # A folder of its own for each try: neither half a file nor Ivy's own cache survives a failure.
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
    found = _sha256(file)
    if found != jar.sha256:
        raise JarError(f"its sha256 is {found}, not the {jar.sha256} of {LOCK.name}")
    size = file.stat().st_size
    file.replace(cache / jar.file_name)
    stamp = file.with_suffix(".stamp")
    stamp.write_text(f"{jar.sha256} {size}\n")
    stamp.replace(_stamp(jar, cache))


def _adopt(jar: Jar, cache: Path) -> bool:
    """Takes over a jar without a stamp, as one copied in by hand is; removes it if it is not the right one."""
    file = cache / jar.file_name
    if not file.exists():
        return False
    with tempfile.TemporaryDirectory(prefix=".adopt-", dir=cache) as folder:
        moved = file.replace(Path(folder) / jar.file_name)
        try:
            _accept(jar, moved, cache)
        except JarError:
            return False
    return True


def _is_stamped(jar: Jar, cache: Path) -> bool:
    try:
        size = (cache / jar.file_name).stat().st_size
        return _stamp(jar, cache).read_text() == f"{jar.sha256} {size}\n"
    except OSError:
        return False


def _stamp(jar: Jar, cache: Path) -> Path:
    return cache / f"{jar.file_name}.stamp"


@contextmanager
def exclusive(cache: Path, report: Callable[[str], None]) -> Iterator[None]:
    """One process at a time adds to the cache."""
    with (cache / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that fills the cache …")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar")]
    if not found:
        raise SettingsError("PySpark is not installed here; run `make serve`, which installs it")
    return found[0]


def _reason(output: str) -> str:
    """The most telling line of what Ivy printed."""
    lines = [line.strip(" :\t") for line in output.splitlines() if line.strip(" :\t=-.")]
    telling = ("not found", "UnknownHost", "refused", "timed out", "Exception", "rror")
    found = next(
        (line for word in telling for line in lines if word in line), lines[-1] if lines else "no reason given"
    )
    return found[:200]
