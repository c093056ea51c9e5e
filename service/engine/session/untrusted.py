"""Translates what untrusted SQL makes Spark throw: all of it is the query's fault, unless something else is broken."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError

from service.engine.session.translate import (
    NOT_COMPUTED,
    TOO_DEEP,
    TOO_MUCH_MEMORY,
    chain_of,
    is_lost,
    is_odd,
    translated,
)
from service.errors import EngineUnavailable, FirnError, InvalidQuery, QueryTooExpensive

log = logging.getLogger("firn.engine")
_CLASS = re.compile(r"\b(?:com|io|java|javax|jdk|net|org|scala|sun)\.(?:[\w$]+\.)+[A-Z][\w$.]*(?:: )?")
_PATH = re.compile(r"(?:\w+:/)?(?:/[\w.@%+-]+){2,}/?")
_LINK = re.compile(r"[^.:]*\bhttps?://\S+")
_PLAIN = re.compile(r"[\w ,.;:'\"()\[\]{}<>=+*/%&#!?|^$@~`…-]{3,300}")
_WORDS = re.compile(r"[A-Za-z]{2,} +[A-Za-z]")
_OUT_OF_RANGE = "an argument of a function is out of its range"
_UNKNOWN = "Spark cannot compute one of its expressions; check their arguments, and simplify them one by one"
_TOO_MUCH = ("OutOfMemoryError", "TooLargeResult", "BufferHolder", "maxResultSize", "Cannot grow", "53200")
# Spark's own name for an error that it did not expect.
_UNEXPECTED = (
    "INTERNAL_ERROR",
    "You hit a bug",
    "assertion failed",
    "None.get",
    "MatchError",
    "(of class ",
    "awaitResult",
    "Couldn't find",
)
_FROM_VALUES = ("Arithmetic", "DateTime", "NumberFormat", "IndexOutOfBounds", "NegativeArraySize")


@contextmanager
def untrusted(field: str = "sql") -> Iterator[None]:
    """Translate what untrusted SQL, or an expression, raises in the block, so that each error is one that its sender
    can act on; it is at `field` of the request."""
    try:
        yield
    except FirnError:
        raise
    except Exception as e:
        error = e if is_lost(e) or is_odd(e) else of_query(e, field)
        if error is e:
            raise
        raise error from e


def of_query(error: Exception, field: str = "sql") -> Exception:
    """The error that the sender of a query sees, or the same exception if it is a defect of Firn."""
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JJavaError | PySparkException | ValueError | ArithmeticError | NotImplementedError):
        return translated(error)
    chain = list(chain_of(error))
    found = translated(error)
    # The message about a value quotes it, and it may contain anything.
    quoting = isinstance(found, InvalidQuery)
    shown = " ".join(name if quoting else f"{name} {message}" for name, message in chain)
    if any(sign in shown for sign in _TOO_MUCH):
        return QueryTooExpensive(TOO_MUCH_MEMORY, field=field)
    if "StackOverflowError" in shown:
        return QueryTooExpensive(TOO_DEEP, field=field)
    if found is not error:
        return _plain(found)
    ours = None if isinstance(error, Py4JJavaError | PySparkException) else error
    log.warning("a query in SQL failed in an unusual way: %s", shown[:2000], exc_info=ours)
    if any(part in name for name, _ in chain for part in _FROM_VALUES):
        return InvalidQuery(f"{NOT_COMPUTED}: {_reason(chain, _OUT_OF_RANGE)}", field=field)
    return InvalidQuery(f"the query failed: {_reason(chain, _UNKNOWN)}", field=field)


def _plain(found: Exception) -> Exception:
    """The error without names of Java classes, and without paths in the messages about the query."""
    if isinstance(found, FirnError) and not isinstance(found, EngineUnavailable):
        found.message = _LINK.sub("", _CLASS.sub("", found.message)).strip()
    return found


def _reason(chain: list[tuple[str, str]], otherwise: str) -> str:
    """What the innermost cause says that says something, without names of classes and paths."""
    for name, message in reversed(chain):
        line = _PATH.sub("…", _CLASS.sub("", message.strip().partition("\n")[0])).strip(" .:")
        unexpected = any(sign in f"{name} {message}" for sign in _UNEXPECTED)
        if _PLAIN.fullmatch(line) and _WORDS.search(line) and not unexpected:
            return line
    return otherwise
