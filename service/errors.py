"""Every error that a caller can see.

FirnError                      code                    status  retryable
├── InvalidRequest             INVALID_REQUEST         400
│   ├── UnknownOperation       UNKNOWN_OPERATION       400
│   ├── UnknownField           UNKNOWN_FIELD           400
│   ├── InvalidSchema          INVALID_SCHEMA          400
│   ├── InvalidRecord          INVALID_RECORD          400
│   ├── InvalidFilter          INVALID_FILTER          400
│   ├── InvalidQuery           INVALID_QUERY           400
│   └── ConfirmationRequired   CONFIRMATION_REQUIRED   400
├── NotFound                   NOT_FOUND               404
│   ├── TableNotFound          TABLE_NOT_FOUND         404
│   ├── NamespaceNotFound      NAMESPACE_NOT_FOUND     404
│   ├── BackupNotFound         BACKUP_NOT_FOUND        404
│   ├── RequestNotFound        REQUEST_NOT_FOUND       404
│   ├── ScheduleNotFound       SCHEDULE_NOT_FOUND      404
│   └── SnapshotNotFound       SNAPSHOT_NOT_FOUND      404
├── MethodNotAllowed           METHOD_NOT_ALLOWED      405
├── TableExists                TABLE_EXISTS            409
├── NamespaceExists            NAMESPACE_EXISTS        409
├── NamespaceNotEmpty          NAMESPACE_NOT_EMPTY     409
├── ScheduleExists             SCHEDULE_EXISTS         409
├── CommitConflict             COMMIT_CONFLICT         409     yes
├── PlanStale                  PLAN_STALE              409
├── UndoConflict               UNDO_CONFLICT           409
├── UndoTooLate                UNDO_TOO_LATE           409
├── RowCountMismatch           ROW_COUNT_MISMATCH      409
├── ChecksumMismatch           CHECKSUM_MISMATCH       409
├── Cancelled                  CANCELLED               409
│   └── DeadlineExceeded       DEADLINE_EXCEEDED       504
├── BodyTooLarge               BODY_TOO_LARGE          413
├── KeyReused                  KEY_REUSED              422
├── TooManyRequests            TOO_MANY_REQUESTS       429     yes
├── Unavailable                UNAVAILABLE             503     yes
│   ├── EngineUnavailable      ENGINE_UNAVAILABLE      503     yes
│   ├── CatalogUnavailable     CATALOG_UNAVAILABLE     503     yes
│   ├── LedgerUnavailable      LEDGER_UNAVAILABLE      503     yes
│   ├── StorageUnavailable     STORAGE_UNAVAILABLE     503     yes
│   ├── ShuttingDown           SHUTTING_DOWN           503     yes
│   ├── KeyBusy                KEY_BUSY                503     yes
│   └── OutcomeUnknown         OUTCOME_UNKNOWN         503     yes
└── InternalError              INTERNAL_ERROR          500

Errors that keep the service from starting are `settings.SettingsError`.
"""

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar, Self


class FirnError(Exception):
    """An error with everything that its response needs; rendered in one place, `operations/envelope.py`."""

    code: ClassVar[str]
    status: ClassVar[int]
    retryable: ClassVar[bool] = False

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

    @classmethod
    def at(cls, path: str, problem: str, suggestion: str | None = None) -> Self:
        """The error of one field of a request. Its message begins with `path`, the place of the field."""
        return cls(f"{path}: {problem}", field=path, suggestion=suggestion)

    @classmethod
    def unknown(cls, path: str, name: object, what: str, known: Iterable[str]) -> Self:
        """The error of a field that holds a name which is not `known`; it suggests the nearest known name."""
        near, hint = did_you_mean(str(name), known)
        return cls.at(path, f"{str(name)[:80]!r} is not {what}; {hint}", near)


class InvalidRequest(FirnError):
    code, status = "INVALID_REQUEST", 400


class UnknownOperation(InvalidRequest):
    code = "UNKNOWN_OPERATION"


class UnknownField(InvalidRequest):
    code = "UNKNOWN_FIELD"


class InvalidSchema(InvalidRequest):
    code = "INVALID_SCHEMA"


class InvalidRecord(InvalidRequest):
    code = "INVALID_RECORD"


class InvalidFilter(InvalidRequest):
    code = "INVALID_FILTER"


class InvalidQuery(InvalidRequest):
    code = "INVALID_QUERY"


class ConfirmationRequired(InvalidRequest):
    code = "CONFIRMATION_REQUIRED"


class NotFound(FirnError):
    code, status = "NOT_FOUND", 404


class TableNotFound(NotFound):
    code = "TABLE_NOT_FOUND"


class NamespaceNotFound(NotFound):
    code = "NAMESPACE_NOT_FOUND"


class BackupNotFound(NotFound):
    code = "BACKUP_NOT_FOUND"


class RequestNotFound(NotFound):
    code = "REQUEST_NOT_FOUND"


class ScheduleNotFound(NotFound):
    code = "SCHEDULE_NOT_FOUND"


class SnapshotNotFound(NotFound):
    code = "SNAPSHOT_NOT_FOUND"


class MethodNotAllowed(FirnError):
    code, status = "METHOD_NOT_ALLOWED", 405


class TableExists(FirnError):
    code, status = "TABLE_EXISTS", 409


class NamespaceExists(FirnError):
    code, status = "NAMESPACE_EXISTS", 409


class NamespaceNotEmpty(FirnError):
    code, status = "NAMESPACE_NOT_EMPTY", 409


class ScheduleExists(FirnError):
    code, status = "SCHEDULE_EXISTS", 409


class CommitConflict(FirnError):
    code, status, retryable = "COMMIT_CONFLICT", 409, True


class PlanStale(FirnError):
    """The rows of a preview have changed since; nothing was changed."""

    code, status = "PLAN_STALE", 409


class UndoConflict(FirnError):
    """Later changes affected the same rows as the change to undo; nothing was changed."""

    code, status = "UNDO_CONFLICT", 409


class UndoTooLate(FirnError):
    """The data that is needed to undo the change has expired; nothing was changed."""

    code, status = "UNDO_TOO_LATE", 409


class RowCountMismatch(FirnError):
    """The result does not have the expected number of rows; nothing was changed."""

    code, status = "ROW_COUNT_MISMATCH", 409

    def __init__(self, what: str, expected: int, found: int) -> None:
        super().__init__(
            f"Row count mismatch: {what} should have {expected} rows and would have {found}; nothing was changed",
            details={"expected": expected, "found": found},
        )


class ChecksumMismatch(FirnError):
    """The rows written differ from the rows read; nothing was changed."""

    code, status = "CHECKSUM_MISMATCH", 409

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(
            f"Checksum mismatch: the rows read have {expected}, those written {found}; nothing was changed",
            details={"expected": expected, "found": found},
        )


class Cancelled(FirnError):
    """The work was cancelled. Its earlier commits remain; `details` may list them."""

    code, status = "CANCELLED", 409

    def __init__(self, message: str = "the job was cancelled", *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details=details)


class DeadlineExceeded(Cancelled):
    """The request took longer than its deadline allows, and was cancelled."""

    code, status = "DEADLINE_EXCEEDED", 504

    def __init__(self) -> None:
        super().__init__(
            "the request was cancelled at its deadline and changed nothing more; send a larger timeout_ms, request "
            "less, or run it in the background if the operation has `async`"
        )


class BodyTooLarge(FirnError):
    code, status = "BODY_TOO_LARGE", 413


class KeyReused(FirnError):
    code, status = "KEY_REUSED", 422


class TooManyRequests(FirnError):
    code, status, retryable = "TOO_MANY_REQUESTS", 429, True


class Unavailable(FirnError):
    code, status, retryable = "UNAVAILABLE", 503, True


class EngineUnavailable(Unavailable):
    code = "ENGINE_UNAVAILABLE"


class CatalogUnavailable(Unavailable):
    code = "CATALOG_UNAVAILABLE"


class LedgerUnavailable(Unavailable):
    code = "LEDGER_UNAVAILABLE"


class StorageUnavailable(Unavailable):
    code = "STORAGE_UNAVAILABLE"


class ShuttingDown(Unavailable):
    code = "SHUTTING_DOWN"


class KeyBusy(Unavailable):
    """Another instance is processing a request with the same key. Most callers wait for its response instead."""

    code = "KEY_BUSY"

    def __init__(
        self,
        message: str = "another instance is processing a request with this key",
        keys: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(f"{message}; send it again with the same key", field="idempotency_key")
        self.keys = keys


class OutcomeUnknown(Unavailable):
    """The change may have happened. A retry with its idempotency key is safe; without a key, check first."""

    code = "OUTCOME_UNKNOWN"


class InternalError(FirnError):
    code, status = "INTERNAL_ERROR", 500


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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one most likely meant."""
    by_folded = {k.casefold(): k for k in known}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None
