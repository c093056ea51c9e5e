"""Rows of an earlier state that cannot be rows of the table as it is now."""

from collections.abc import Mapping

from service.catalog.tables import Table
from service.errors import InvalidSchema


def refuse_missing_required(table: Table, operation: str, lacking: Mapping[str, int]) -> None:
    """Raise InvalidSchema if rows that would come back have no value for a required column; `lacking` counts them."""
    if not lacking:
        return
    column, rows = next(iter(lacking.items()))
    listed = ", ".join(f'"{name}": true' for name in lacking)
    in_key = any(name in table.schema.primary_key for name in lacking)
    raise InvalidSchema(
        f"{operation} would bring back rows without a value for {column!r}, which is required now: {rows} of them; "
        f"nothing was changed. Send ALTER_TABLE with set_nullable {{{listed}}}{', primary_key []' if in_key else ''} "
        "first, or read them by QUERY with as_of",
        field=column,
        details={"rows_lacking": dict(lacking)},
    )
