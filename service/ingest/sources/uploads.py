"""Files that were sent with a request: each is kept in the spool folder until it is ingested or refused."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from service.errors import BodyTooLarge, InvalidRequest
from service.ingest.sources.fetch import Source, new_folder, remove_folder

_SCHEME = "upload:"


@dataclass
class Upload:
    """A file while it is received."""

    path: Path
    name: str
    limit_mb: int
    size: int = 0
    _hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def write(self, chunk: bytes) -> None:
        """Add bytes; BodyTooLarge if they are too many."""
        self.size += len(chunk)
        if self.size > self.limit_mb << 20:
            raise BodyTooLarge(f"the file is larger than {self.limit_mb} MiB; ingest it by its path or S3 URL")
        self._hash.update(chunk)
        with self.path.open("ab") as file:
            file.write(chunk)

    @property
    def content_hash(self) -> str:
        return self._hash.hexdigest()


def is_upload(source: str) -> bool:
    """Whether a source is a file that was sent with its request."""
    return source.startswith(_SCHEME)


class Uploads:
    """The files that were received, by names that a request can have as its source."""

    def __init__(self, spool: Path, limit_mb: int) -> None:
        self._spool = spool
        self._limit_mb = limit_mb
        self._lock = threading.Lock()
        self._held: dict[str, list[Upload]] = {}

    def begin(self, name: str) -> Upload:
        """A file to be received. Its creator must call `discard`, or `hold` it."""
        path = new_folder(self._spool) / "file"
        path.touch()
        return Upload(path, name, self._limit_mb)

    def hold(self, upload: Upload) -> str:
        """What to send as the source of this file; the same for the same content and name."""
        source = f"{_SCHEME}{upload.content_hash}/{upload.name}"
        with self._lock:
            self._held.setdefault(source, []).append(upload)
        return source

    @contextmanager
    def using(self, source: str) -> Iterator[Source | None]:
        """The file that a request has as its source, which is removed after the block; None if it names another one."""
        if not is_upload(source):
            yield None
            return
        with self._lock:
            held = self._held.get(source, [])
            upload = held.pop() if held else None
            if not held:
                self._held.pop(source, None)
        if upload is None:
            raise InvalidRequest.at("source", "the uploaded file is not there any more; send it again")
        try:
            yield Source(str(upload.path), upload.name)
        finally:
            self.discard(upload)

    def release(self, source: str, upload: Upload) -> None:
        """Remove a file that no request used."""
        with self._lock:
            held = self._held.get(source, [])
            is_unused = upload in held
            if is_unused:
                held.remove(upload)
            if not held:
                self._held.pop(source, None)
        if is_unused:
            self.discard(upload)

    @staticmethod
    def discard(upload: Upload) -> None:
        remove_folder(upload.path.parent)
