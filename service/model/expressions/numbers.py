"""Read the numbers of expressions: whole numbers and decimals are exact, numbers with an exponent are doubles."""

from decimal import Decimal
from math import isinf

from service.model.expressions.kinds import DOUBLE, INTEGER, LONG
from service.model.expressions.tree import Constant
from service.model.records import InvalidValue
from service.model.schema.definition import MAX_PRECISION
from service.model.schema.types import DecimalType


def read_number(text: str) -> Constant:
    """The number in the smallest type that holds it; raises InvalidValue."""
    if "e" in text.lower():
        if isinf(float(text)):
            raise InvalidValue(f"{text[:40]} is beyond what a double can hold")
        return Constant(DOUBLE, float(text))
    number = Decimal(text)
    if "." not in text and -(2**63) <= number < 2**63:
        return Constant(INTEGER if -(2**31) <= number < 2**31 else LONG, int(number))
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    if precision > MAX_PRECISION:
        raise InvalidValue(
            f"a number has at most {MAX_PRECISION} digits; with an exponent, such as 1e40, it is a double"
        )
    return Constant(DecimalType(precision, scale), number)
