"""The classes that the JVM loads at a start, as one file that the next start maps into its memory.

Almost half of a bare start is Java reading and checking Spark's classes in its three hundred jars. A rehearsal of a
start leaves them as they stood in memory in the end. Java takes such an archive only with the very Java and jars it was
made with, and goes on without it otherwise; so its name says which they were.
"""

import hashlib
import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from service.jars import cache_dir, exclusive, java_command

# What Java would say of an archive that does not suit it; without one a start is slower, and that is all.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_UNUSED_S = 30 * 24 * 3600
Options = Sequence[str]


def to_read(jars: list[Path], environ: Mapping[str, str]) -> Options:
    """The JVM's options for a start with these jars: those that read the archive, where one was made."""
    file = archive(jars, environ)
    try:
        os.utime(file)  # so that it is known to be in use
    except FileNotFoundError:
        return ()
    except OSError:  # a cache that we may only read
        pass
    return (f"-XX:SharedArchiveFile={file}", *_QUIET)


def prepare(
    jars: list[Path], environ: Mapping[str, str], rehearse: Callable[[Options], None], report: Callable[[str], None]
) -> bool:
    """Make the archive, unless there is one; `rehearse` starts and ends a JVM that has these jars and options."""
    file = archive(jars, environ)
    try:
        with exclusive(file.parent, report):
            if file.exists():
                return True
            _remove_unused(file.parent)
            report("preparing Spark's classes, so that starts take less long (once, about half a minute) …")
            with tempfile.TemporaryDirectory(prefix=".classes-", dir=file.parent) as folder:
                made = Path(folder) / file.name
                rehearse((f"-XX:ArchiveClassesAtExit={made}", *_QUIET))
                made.replace(file)
    except FileNotFoundError:
        reason = "this Java wrote none"
    except Exception as e:  # whatever it was: nothing depends on it
        reason = str(e)
    else:
        return True
    report(f"Spark's classes were not prepared: {reason}. Everything works, starts only take longer")
    return False


def archive(jars: list[Path], environ: Mapping[str, str]) -> Path:
    """The file for these jars, PySpark's own and the Java that would be started, wherever they change."""
    told = hashlib.sha256()
    for file in (*_java(environ), *jars, *sorted(_spark())):
        told.update(f"{file} {_state(file)}\n".encode())
    return cache_dir(environ) / f"classes-{told.hexdigest()[:16]}.jsa"


def _java(environ: Mapping[str, str]) -> Iterator[Path]:
    found = shutil.which(java_command(environ), path=environ.get("PATH"))
    if found:
        program = Path(found).resolve()
        yield from (program, program.parent.parent / "lib" / "modules")


def _spark() -> Iterator[Path]:
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield from Path(folder, "jars").glob("*.jar")


def _state(file: Path) -> str:
    with suppress(OSError):
        stat = file.stat()
        return f"{stat.st_size} {int(stat.st_mtime)}"
    return "none"


def _remove_unused(cache: Path) -> None:
    """What starts of a Java or a PySpark that went away have left."""
    for file in cache.glob("classes-*.jsa"):
        with suppress(OSError):
            if file.stat().st_mtime < time.time() - _UNUSED_S:
                file.unlink()
