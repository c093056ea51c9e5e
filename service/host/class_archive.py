"""An archive of the classes that Spark's JVM loads, which makes later starts faster (class data sharing).

Almost half of a plain start is Java reading and verifying Spark's classes from three hundred jars. A rehearsed start
writes them to one file as they are in memory, and later starts map that file. Java uses an archive only with exactly
the Java and the jars that wrote it, and ignores it otherwise; so its name contains a hash of them.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from service.host.jars import cache_dir, find_java, locked_cache, spark_jars

# No warnings about an archive that does not match: the start is only slower.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_UNUSED_S = 30 * 24 * 3600
Options = Sequence[str]


def java_options(jars: list[Path], environ: Mapping[str, str]) -> Options:
    """The JVM's options for a start with these jars: they read the archive, if there is one."""
    file = archive(jars, environ)
    try:
        os.utime(file)  # marks it as used
    except FileNotFoundError:
        return ()
    except OSError:  # a read-only cache
        pass
    return (f"-XX:SharedArchiveFile={file}", *_QUIET)


def prepare(
    jars: list[Path], environ: Mapping[str, str], rehearse: Callable[[Options], None], report: Callable[[str], None]
) -> bool:
    """Make the archive unless it exists, and return whether it does. `rehearse` runs a JVM with the given options."""
    file = archive(jars, environ)
    try:
        with locked_cache(file.parent, report):
            if file.exists():
                return True
            _remove_unused(file.parent)
            report("preparing Spark's classes for faster starts (once, about half a minute) …")
            with tempfile.TemporaryDirectory(prefix=".classes-", dir=file.parent) as folder:
                made = Path(folder) / file.name
                rehearse((f"-XX:ArchiveClassesAtExit={made}", *_QUIET))
                made.replace(file)
    except FileNotFoundError:
        reason = "Java wrote no archive"
    except Exception as e:  # whatever it is, Spark starts without an archive
        reason = str(e)
    else:
        return True
    report(f"Spark's classes were not prepared: {reason}. Everything works, only starts take longer")
    return False


def archive(jars: list[Path], environ: Mapping[str, str]) -> Path:
    """The archive's path. It depends on these jars, PySpark's own jars, and the Java that would be started."""
    identity = hashlib.sha256()
    java = find_java(environ)
    programs = (java, java.parent.parent / "lib" / "modules") if java else ()
    for file in (*programs, *jars, *spark_jars()):
        identity.update(f"{file} {_state(file)}\n".encode())
    return cache_dir(environ) / f"classes-{identity.hexdigest()[:16]}.jsa"


def _state(file: Path) -> str:
    with suppress(OSError):
        stat = file.stat()
        return f"{stat.st_size} {int(stat.st_mtime)}"
    return "none"


def _remove_unused(cache: Path) -> None:
    """Delete archives that no start has used for a month: their Java or PySpark was probably replaced."""
    for file in cache.glob("classes-*.jsa"):
        with suppress(OSError):
            if file.stat().st_mtime < time.time() - _UNUSED_S:
                file.unlink()
