"""Translate the exceptions of PyIceberg and its storage into Firn's errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    SignError,
    WaitingForLockException,
)
from requests.exceptions import RequestException

from service.errors import CatalogUnavailable, CommitConflict, FirnError, OutcomeUnknown, StorageUnavailable

_UNREACHABLE = (
    RESTError,
    ServerError,
    ServiceUnavailableError,
    SignError,
    WaitingForLockException,
    RequestException,
    ConnectionError,
    TimeoutError,
)


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except FirnError:
        raise
    except CommitStateUnknownException as e:
        raise OutcomeUnknown(
            "the catalog did not confirm whether the change happened; check before you send it again"
        ) from e
    except CommitFailedException as e:
        raise CommitConflict("another writer changed the table first; try again") from e
    except _UNREACHABLE as e:
        raise CatalogUnavailable("the catalog does not respond; try again") from e
    except OSError as e:
        raise StorageUnavailable(f"the table's storage failed: {_first_line(e)}") from e
    except Exception as e:
        if any(
            base.__module__.startswith(("sqlalchemy.", "sqlite3", "psycopg", "botocore.")) for base in type(e).__mro__
        ):
            raise CatalogUnavailable(f"the catalog does not respond: {_first_line(e)}") from e
        raise


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:300]
