"""Where files to ingest may be: checks the paths and URLs that requests name."""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from service.errors import InvalidRequest

_SLASHES = re.compile("(?<!:)/{2,}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True)
class Roots:
    """The folders and S3 prefixes that requests may name; without any, every place.

    `{tenant}` in a root stands for the tenant of the request, so that each has folders of its own.
    """

    allowed: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    """Places of Firn's own, which no request may name: they hold the data of all tenants."""
    closed: bool = False
    """Whether without any root no place is allowed, instead of every one."""

    def of(self, tenant: str) -> "Roots":
        """The roots of a tenant."""
        return replace(self, allowed=tuple(root.replace("{tenant}", tenant) for root in self.allowed))

    def resolve(self, source: str, field: str = "source") -> str:
        """The absolute path or S3 URL of a source. InvalidRequest if it is neither, or not in an allowed place.

        Relative paths start at the working directory. A link counts as the file that it leads to.
        """
        scheme = _SCHEME.match(source)
        if scheme and scheme[1].lower() in ("s3", "s3a"):
            place = f"s3://{source[scheme.end() :]}"
        elif scheme and scheme[1].lower() == "file":
            place = self._local(unquote(source[scheme.end() :].removeprefix("localhost")))
        elif scheme:
            raise InvalidRequest.at(
                field, f"{scheme[1]}:// is not supported; send a path, a file:// or an s3:// URL, or upload the file"
            )
        elif not source.strip() or "\0" in source:
            raise InvalidRequest.at(field, "expected a path, or a file:// or s3:// URL")
        else:
            place = self._local(source)
        if self.closed and not self.allowed:
            raise InvalidRequest.at(
                field,
                f"no folder is open to requests; {'upload the file' if field == 'source' else 'leave it out'}, or ask "
                "the administrator to set FIRN_INGEST__ALLOWED_ROOTS",
            )
        if (self.allowed and not any(_contains(_root(root), place) for root in self.allowed)) or any(
            _contains(_root(root), _SLASHES.sub("/", place)) for root in self.own
        ):
            raise InvalidRequest.at(
                field,
                f"{source[:200]!r} is not in a folder that may be ingested from; use one of "
                f"{', '.join(self.allowed)}, or set FIRN_INGEST__ALLOWED_ROOTS",
            )
        return place

    @staticmethod
    def _local(path: str) -> str:
        return os.path.realpath(Path(path).expanduser())


def is_remote(place: str) -> bool:
    return place.startswith("s3://")


def _root(root: str) -> str:
    return f"s3://{root.partition('://')[2]}" if "://" in root and not root.startswith("file:") else _real(root)


def _real(root: str) -> str:
    return os.path.realpath(Path(unquote(root.removeprefix("file://"))).expanduser())


def _contains(root: str, place: str) -> bool:
    if ".." in place.split("/"):  # in a URL; a path has none
        return False
    return place == root or place.startswith(root.rstrip("/") + "/")
