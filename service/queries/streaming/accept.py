"""Which form of an answer a caller's Accept header asks for."""

from collections.abc import Iterator
from typing import Literal

from service.errors import InvalidRequest

Form = Literal["json", "arrow", "csv"]
MEDIA_TYPES: dict[Form, str] = {
    "json": "application/json",
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv",
}


def wanted(accept: str) -> Form:
    """The form with the highest weight, of equals the one named more plainly, of those JSON; without a header JSON."""
    ranges = list(_ranges(accept))
    if not ranges:
        return "json"
    best, form = max(
        ((_weight(media, ranges), form) for form, media in MEDIA_TYPES.items()), key=lambda found: found[0]
    )
    if not best[0]:
        raise InvalidRequest(
            f"Accept is {accept[:200]!r}, and a QUERY answers {', '.join(MEDIA_TYPES.values())}; ask for one of them",
            field="Accept",
        )
    return form


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if media:
            yield media, _quality(parameters)


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                return 1.0
            return quality if 0 <= quality <= 1 else 1.0
    return 1.0


def _weight(media: str, ranges: list[tuple[str, float]]) -> tuple[float, int]:
    """A media type's quality, by the plainest of the ranges that name it, and how plain that is."""
    kinds = ("*/*", f"{media.partition('/')[0]}/*", media)
    found = [(kinds.index(given), quality) for given, quality in ranges if given in kinds]
    plainness, quality = max(found, default=(0, 0.0))
    return quality, plainness
