"""What the ledger's database says when it fails, as the error a caller sees."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from service.errors import LedgerUnavailable


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as e:
        said = str(e.__cause__ or e).partition("\n")[0]
        raise LedgerUnavailable(f"the ledger does not answer: {said}; try again") from e
