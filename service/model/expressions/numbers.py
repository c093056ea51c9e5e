"""Numbers as an expression writes them: whole ones and decimals are exact, those with an exponent are doubles."""

from decimal import Decimal
from math import isinf

from service.expressions.kinds import DOUBLE, INTEGER, LONG
from service.expressions.tree import Constant
from service.records import Misfit
from service.schema import MAX_PRECISION, DecimalType


def read_number(text: str) -> Constant:
    """The number in the smallest type that holds it; Misfit where there is none."""
    if "e" in text.lower():
        if isinf(float(text)):
            raise Misfit(f"{text[:40]} is beyond what a double can hold")
        return Constant(DOUBLE, float(text))
    number = Decimal(text)
    if "." not in text and -(2**63) <= number < 2**63:
        return Constant(INTEGER if -(2**31) <= number < 2**31 else LONG, int(number))
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    if precision > MAX_PRECISION:
        raise Misfit(f"a number has at most {MAX_PRECISION} digits; with an exponent, such as 1e40, it is a double")
    return Constant(DecimalType(precision, scale), number)
