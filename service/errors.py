"""Every error that a caller can see.

FirnError                      code                    status  retryable
├── InvalidRequest             INVALID_REQUEST         400
│   ├── UnknownOperation       UNKNOWN_OPERATION       400
│   ├── UnknownField           UNKNOWN_FIELD           400
│   ├── InvalidSchema          INVALID_SCHEMA          400
│   ├── InvalidRecord          INVALID_RECORD          400
│   ├── InvalidFilter          INVALID_FILTER          400
│   ├── InvalidQuery           INVALID_QUERY           400
│   ├── InvalidFile            INVALID_FILE            400
│   ├── FileRejected           FILE_REJECTED           400
│   └── ConfirmationRequired   CONFIRMATION_REQUIRED   400
├── Unauthenticated            UNAUTHENTICATED         401
├── Forbidden                  FORBIDDEN               403
├── NotFound                   NOT_FOUND               404
│   ├── TableNotFound          TABLE_NOT_FOUND         404
│   ├── NamespaceNotFound      NAMESPACE_NOT_FOUND     404
│   ├── BackupNotFound         BACKUP_NOT_FOUND        404
│   ├── RequestNotFound        REQUEST_NOT_FOUND       404
│   ├── ScheduleNotFound       SCHEDULE_NOT_FOUND      404
│   ├── ApiKeyNotFound         API_KEY_NOT_FOUND       404
│   └── SnapshotNotFound       SNAPSHOT_NOT_FOUND      404
├── MethodNotAllowed           METHOD_NOT_ALLOWED      405
├── TableExists                TABLE_EXISTS            409
├── TableInUse                 TABLE_IN_USE            409
├── NamespaceExists            NAMESPACE_EXISTS        409
├── NamespaceNotEmpty          NAMESPACE_NOT_EMPTY     409
├── ScheduleExists             SCHEDULE_EXISTS         409
├── TooManyApiKeys             TOO_MANY_API_KEYS       409
├── CommitConflict             COMMIT_CONFLICT         409     yes
├── PlanStale                  PLAN_STALE              409
├── UndoConflict               UNDO_CONFLICT           409
├── UndoTooLate                UNDO_TOO_LATE           409
├── RefreshHeldBack            REFRESH_HELD_BACK       409
├── TableNotBuilt              TABLE_NOT_BUILT         409
├── RowCountMismatch           ROW_COUNT_MISMATCH      500
├── ChecksumMismatch           CHECKSUM_MISMATCH       500
├── Cancelled                  CANCELLED               409
│   └── DeadlineExceeded       DEADLINE_EXCEEDED       504
├── RequestTimeout             REQUEST_TIMEOUT         408     yes
├── BodyTooLarge               BODY_TOO_LARGE          413
├── KeyReused                  KEY_REUSED              422
├── ResponseTooLarge           RESPONSE_TOO_LARGE      422
├── QueryTooExpensive          QUERY_TOO_EXPENSIVE     422
├── TooManyRequests            TOO_MANY_REQUESTS       429     yes
├── HeadTooLarge               HEAD_TOO_LARGE          431
├── Unavailable                UNAVAILABLE             503     yes
│   ├── EngineUnavailable      ENGINE_UNAVAILABLE      503     yes
│   ├── CatalogUnavailable     CATALOG_UNAVAILABLE     503     yes
│   ├── LedgerUnavailable      LEDGER_UNAVAILABLE      503     yes
│   ├── StorageUnavailable     STORAGE_UNAVAILABLE     503     yes
│   ├── ShuttingDown           SHUTTING_DOWN           503     yes
│   ├── KeyBusy                KEY_BUSY                503     yes
│   └── OutcomeUnknown         OUTCOME_UNKNOWN         503
└── InternalError              INTERNAL_ERROR          500

OUTCOME_UNKNOWN is retryable if the request had an idempotency key.
Errors that keep the service from starting are `settings.SettingsError`.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Any, ClassVar, Self

_LONGEST_MISSPELT = 300


class FirnError(Exception):
    """An error with everything that its response needs; rendered in one place, `operations/envelope.py`."""

    code: ClassVar[str]
    status: ClassVar[int]
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, status: int | None = None, retryable: bool | None = None) -> None:
        """A class of this module has its name as its code. Everything that is not given is inherited."""
        super().__init_subclass__()
        if cls.__module__ == __name__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()
        if status is not None:
            cls.status = status
        if retryable is not None:
            cls.retryable = retryable

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        suggestion: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.suggestion = suggestion
        self.details = details
        self.without_names: str | None = None
        """The message without names that only readers of the whole tenant may see, if it has such names."""

    @classmethod
    def at(cls, path: str, problem: str, suggestion: str | None = None) -> Self:
        """The error of one field of a request. Its message begins with `path`, the place of the field."""
        return cls(f"{path}: {problem}", field=path, suggestion=suggestion)

    @classmethod
    def unknown(cls, path: str, name: object, what: str, known: Iterable[str]) -> Self:
        """The error of a field with a name that is not `known`; it suggests the nearest known name."""
        near, hint = did_you_mean(str(name), known)
        return cls.at(path, f"{str(name)[:80]!r} is not {what}; {hint}", near)


class InvalidRequest(FirnError, status=400): ...


class UnknownOperation(InvalidRequest): ...


class UnknownField(InvalidRequest): ...


class InvalidSchema(InvalidRequest): ...


class InvalidRecord(InvalidRequest): ...


class InvalidFilter(InvalidRequest): ...


class InvalidQuery(InvalidRequest): ...


class InvalidFile(InvalidRequest):
    """A file to ingest that cannot be read."""


class FileRejected(InvalidRequest):
    """A file to ingest whose columns or rows break rules that refuse it as a whole."""


class ConfirmationRequired(InvalidRequest): ...


class Unauthenticated(FirnError, status=401):
    """The request has no credential, or one that is not valid."""


class Forbidden(FirnError, status=403):
    """The sender may not do this. It says nothing about whether anything exists."""


class NotFound(FirnError, status=404): ...


class TableNotFound(NotFound): ...


class NamespaceNotFound(NotFound): ...


class BackupNotFound(NotFound): ...


class RequestNotFound(NotFound): ...


class ScheduleNotFound(NotFound): ...


class ApiKeyNotFound(NotFound): ...


class SnapshotNotFound(NotFound): ...


class MethodNotAllowed(FirnError, status=405): ...


class TableExists(FirnError, status=409): ...


class TableInUse(FirnError, status=409): ...


class NamespaceExists(FirnError, status=409): ...


class NamespaceNotEmpty(FirnError, status=409): ...


class ScheduleExists(FirnError, status=409): ...


class TooManyApiKeys(FirnError, status=409):
    """The principal has as many live API keys as it may have."""


class CommitConflict(FirnError, status=409, retryable=True): ...


class PlanStale(FirnError, status=409):
    """The rows of a preview have changed since; nothing was changed."""


class UndoConflict(FirnError, status=409):
    """Later changes affected the same rows as the change to undo; nothing was changed."""


class UndoTooLate(FirnError, status=409):
    """The data that is needed to undo the change has expired; nothing was changed."""


class RefreshHeldBack(FirnError, status=409): ...


class TableNotBuilt(FirnError, status=409): ...


class RowCountMismatch(FirnError, status=500):
    """The result does not have the expected number of rows; nothing was changed."""

    def __init__(self, what: str, expected: int, found: int) -> None:
        super().__init__(
            f"Row count mismatch: {what} should have {expected} rows and would have {found}; nothing was changed",
            details={"expected": expected, "found": found},
        )


class ChecksumMismatch(FirnError, status=500):
    """The rows written differ from the rows read; nothing was changed."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(
            f"Checksum mismatch: the rows read have {expected}, those written {found}; nothing was changed",
            details={"expected": expected, "found": found},
        )


class Cancelled(FirnError, status=409):
    """The work was cancelled. Its earlier commits remain; `details` may list them."""

    def __init__(self, message: str = "the job was cancelled", *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details=details)


class DeadlineExceeded(Cancelled, status=504):
    """The request took longer than its deadline allows, and was cancelled."""

    def __init__(self) -> None:
        super().__init__(
            "the request was cancelled at its deadline and changed nothing more; send a larger timeout_ms, request "
            "less, or run it in the background if the operation has `async`"
        )


class RequestTimeout(FirnError, status=408, retryable=True):
    """The client sent its request too slowly."""


class BodyTooLarge(FirnError, status=413): ...


class KeyReused(FirnError, status=422): ...


class ResponseTooLarge(FirnError, status=422):
    """The response to a read would be larger than a response may be."""


class QueryTooExpensive(FirnError, status=422):
    """The query would take, or took, more memory, stack or time than one query may. Sent again, it fails again."""


class TooManyRequests(FirnError, status=429, retryable=True): ...


class HeadTooLarge(FirnError, status=431):
    """The URL and the headers of a request are too large."""


class Unavailable(FirnError, status=503, retryable=True): ...


class EngineUnavailable(Unavailable): ...


class CatalogUnavailable(Unavailable): ...


class LedgerUnavailable(Unavailable): ...


class StorageUnavailable(Unavailable): ...


class ShuttingDown(Unavailable): ...


class KeyBusy(Unavailable):
    """Another instance is processing a request with the same key. Most callers wait for its response instead."""

    def __init__(
        self,
        message: str = "another instance is processing a request with this key",
        keys: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(f"{message}; send it again with the same key", field="idempotency_key")
        self.keys = keys


class OutcomeUnknown(Unavailable, retryable=False):
    """The change may have happened. A request with an idempotency key may be sent again; without one, check first."""


class InternalError(FirnError, status=500): ...


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> tuple[str | None, str]:
    """The known name nearest to a wrong one, if any, and a hint for the message.

    If none is near, the hint is `otherwise`, or a list of the known names.
    """
    names = list(known)
    near = nearest(name, names)
    if near:
        return near, f"did you mean {near!r}?"
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return None, otherwise or f"use {'one of ' if len(names) > 1 else ''}{listed}"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that a misspelt one most likely meant; none is less similar than `cutoff`, from 0 to 1."""
    if len(name) > _LONGEST_MISSPELT:  # comparing megabytes takes minutes
        return None
    by_folded = {k.casefold(): k for k in known}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None
