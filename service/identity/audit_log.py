"""The audit log: who sent which request, about which tables, and its outcome. As JSON lines, and in the ledger.

A request does not wait for its entry: a thread of its own writes entries in groups, at most a second later.
"""

import json
import logging
import logging.handlers
import threading
import uuid
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from service.errors import FirnError
from service.ledger.audit import AuditFilter, AuditRecord, AuditRecords, Place
from service.model.call import Call
from service.model.identity.principal import ANYONE
from service.model.names import TableName
from service.model.times import HOUR_MS, now_ms, utc
from service.settings import Settings, SettingsError
from service.settings.security import AuditSettings

log = logging.getLogger("firn.audit")
_EVERY_S = 1.0
# If neither the ledger nor the file can be written for long, the oldest entries are lost, which the log says.
_MOST_WAITING = 100_000
_AT_ONCE = 1000


class AuditLog:
    """Writes entries, and finds them again. It does nothing unless it is on."""

    def __init__(
        self, settings: AuditSettings, records: AuditRecords, *, on: bool, now_ms: Callable[[], int] = now_ms
    ) -> None:
        self.on = on
        self._settings = settings
        self._records = records
        self._now_ms = now_ms
        self._file = _lines(settings) if on and settings.file is not None else None
        self._changed = threading.Condition()
        self._waiting: deque[AuditRecord] = deque()
        self._flushing = threading.Lock()
        self._unrecorded: deque[AuditRecord] = deque(maxlen=_MOST_WAITING)
        """What the ledger does not have yet."""
        self._lost = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._cleaned_ms = 0

    def add(self, call: Call, operation: str, outcome: str, status: int) -> None:
        """Add an entry about a request that was answered. It never raises and never waits."""
        call.audited = True
        if not self.on:
            return
        entry = AuditRecord(
            uuid.uuid4().hex,
            self._now_ms(),
            _text(call.id, 200),
            "" if call.principal is ANYONE else _text(call.principal.name, 300),
            _text(call.principal.credential, 20),
            _text(call.client, 100),
            _text(operation, 100),
            call.tables[0].tenant[:63] if call.tables else "",
            # A query names its tables later than its tenant.
            tuple(dict.fromkeys(map(_shown, [name for name in call.tables if name.table] or call.tables))),
            outcome,
            status,
            call.elapsed_ms,
        )
        with self._changed:
            if len(self._waiting) >= _MOST_WAITING:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(entry)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._write_regularly, name="firn-audit", daemon=True)
                self._thread.start()
            if len(self._waiting) >= _AT_ONCE:
                self._changed.notify()

    def find(self, which: AuditFilter, limit: int, after: Place | None = None) -> list[AuditRecord]:
        """The latest entries, newest first, those included that were added just now."""
        self.flush()
        return self._records.find(which, limit, after)

    def flush(self) -> None:
        """Write the waiting entries. Those that the ledger does not accept keep waiting; the file has them already."""
        with self._flushing:
            with self._changed:
                entries, lost = list(self._waiting), self._lost
                self._waiting.clear()
                self._lost = 0
            for entry in entries if self._file is not None else ():
                self._write_line(entry)
            lost += max(0, len(self._unrecorded) + len(entries) - _MOST_WAITING)
            self._unrecorded.extend(entries)
            if lost:
                log.error("%d entries of the audit log were lost, because they could not be written", lost)
            while self._unrecorded:
                some = list(islice(self._unrecorded, _AT_ONCE))
                try:
                    self._records.add(some)
                except FirnError as e:
                    log.error("the audit log cannot be written to the ledger yet: %s", e.message)
                    return
                for _ in some:
                    self._unrecorded.popleft()

    def close(self) -> None:
        """Write the waiting entries, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(5)
        self.flush()
        if self._file is not None:
            self._file.close()

    def _write_line(self, entry: AuditRecord) -> None:
        assert self._file is not None
        line = json.dumps(_fields(entry), default=str, ensure_ascii=False)
        self._file.handle(logging.LogRecord("firn.audit", logging.INFO, "", 0, line, (), None))

    def _write_regularly(self) -> None:
        while not self._closed:
            with self._changed:
                if not self._closed:
                    self._changed.wait(_EVERY_S)
            try:
                self.flush()
                self._clean_up()
            except Exception:  # the next second tries again; without this handler it would be the last one
                log.exception("the audit log could not be written")

    def _clean_up(self) -> None:
        now = self._now_ms()
        if now - self._cleaned_ms < HOUR_MS:
            return
        self._cleaned_ms = now
        try:
            self._records.forget(now - self._settings.retention_hours * HOUR_MS, self._settings.max_entries)
        except FirnError as e:
            log.error("old entries of the audit log could not be deleted: %s", e.message)


def _fields(entry: AuditRecord) -> dict[str, Any]:
    """An entry as its JSON line has it: without empty fields."""
    fields = {
        "answered_at": utc(entry.at_ms).isoformat().replace("+00:00", "Z"),
        "request_id": entry.request_id,
        "principal": entry.principal,
        "credential": entry.credential,
        "client": entry.client,
        "operation": entry.operation,
        "tenant_id": entry.tenant,
        "tables": list(entry.tables),
        "outcome": entry.outcome,
        "status": entry.status,
        "duration_ms": entry.duration_ms,
    }
    return {name: value for name, value in fields.items() if value not in ("", [])}


def audit_log(settings: Settings, records: AuditRecords) -> AuditLog:
    """The audit log that the settings describe."""
    audit = settings.audit
    by_default = settings.authenticates or audit.file is not None
    return AuditLog(audit, records, on=by_default if audit.enabled is None else audit.enabled)


def _text(text: str, longest: int) -> str:
    """A text that every database takes: without NUL and other control characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:longest])


def _shown(name: TableName) -> str:
    return f"{name.namespace or '*'}/{name.table or '*'}"


class _Lines(logging.handlers.RotatingFileHandler):
    """Files that only the user of the service can read."""

    def handleError(self, record: logging.LogRecord) -> None:  # its name in logging
        log.error("the audit log cannot be written to its file", exc_info=True)

    def _open(self) -> Any:
        Path(self.baseFilename).touch(0o600)
        return super()._open()


def _lines(settings: AuditSettings) -> logging.Handler:
    assert settings.file is not None
    try:
        return _Lines(
            settings.file.expanduser(),
            maxBytes=settings.file_mb << 20,
            backupCount=settings.files - 1,
            encoding="utf-8",
        )
    except OSError as e:
        raise SettingsError(f"audit.file {settings.file} cannot be written ({e.strerror})") from e
