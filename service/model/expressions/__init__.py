"""Expressions over a row's columns, in SQL's syntax with a documented list of functions.

The text itself never reaches Spark: it is parsed into a tree of columns, constants and known functions.
"""

from service.model.expressions.parser import parse_expression
from service.model.expressions.tree import Expression

__all__ = ["Expression", "parse_expression"]
