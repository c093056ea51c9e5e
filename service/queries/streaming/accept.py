"""The response format that an Accept header prefers."""

import re
from collections.abc import Iterator
from typing import Literal

from service.errors import InvalidRequest

Form = Literal["json", "arrow", "csv"]
MEDIA_TYPES: dict[Form, str] = {
    "json": "application/json",
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv",
}


def accepted_format(accept: str) -> Form:
    """The format with the highest weight; of equals the one named more exactly, then JSON. Without ranges, JSON."""
    ranges = list(_ranges(accept))
    if not ranges:
        return "json"
    form = max(MEDIA_TYPES, key=lambda form: _weight(MEDIA_TYPES[form], ranges))
    if not _weight(MEDIA_TYPES[form], ranges)[0]:
        raise InvalidRequest(
            f"Accept is {accept[:200]!r}, but a QUERY responds with {', '.join(MEDIA_TYPES.values())}; accept one "
            "of them",
            field="Accept",
        )
    return form


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if media:
            yield media, _quality(parameters)


def _quality(parameters: list[str]) -> float:
    given = dict(re.split(r"\s*=", parameter, maxsplit=1) for parameter in parameters if "=" in parameter)
    try:
        quality = float(given.get("q", 1))
    except ValueError:
        return 1.0
    return quality if 0 <= quality <= 1 else 1.0


def _weight(media: str, ranges: list[tuple[str, float]]) -> tuple[float, int]:
    """A media type's quality in the most exact range that matches it, and how exact that range is."""
    kinds = ("*/*", f"{media.partition('/')[0]}/*", media)
    found = [(kinds.index(given), quality) for given, quality in ranges if given in kinds]
    exactness, quality = max(found, default=(0, 0.0))
    return quality, exactness
