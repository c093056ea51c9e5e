"""How far the rows of a dynamic table lag behind its base tables: the age of the oldest change that they lack."""

from collections.abc import Iterable, Sequence

from service.ledger.dynamic_tables import RefreshRecord

LAG = "lag_ms"
"""Among the details of a refresh: the lag just before it ended."""


def lag_ms(missing_since: Iterable[int | None], now_ms: int) -> int:
    """The lag, by when the first missing change of each base table was committed; None for one of which none is."""
    return max((max(0, now_ms - since) for since in missing_since if since is not None), default=0)


def lag_p95_ms(refreshes: Sequence[RefreshRecord]) -> int | None:
    """In 95 of 100 refreshes that brought changes, the lag just before the end was at most this; None if there are
    none."""
    lags = (lag_of(one) for one in refreshes)
    return p95([one for one in lags if one is not None])


def lag_of(refresh: RefreshRecord) -> int | None:
    """The lag just before a refresh ended; None if it brought no changes."""
    found: int | None = refresh.details.get(LAG) if refresh.state == "done" else None
    return found


def p95(values: Sequence[int]) -> int | None:
    """The smallest value that at least 95 of 100 do not exceed."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * 95 // 100) - 1] if ordered else None
