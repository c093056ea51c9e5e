"""A small language over a row's columns: SQL's expressions, with a documented list of functions.

Nothing of a text is passed on: it is read into a tree of columns, constants and known functions.
"""

from service.expressions.parser import parse_expression
from service.expressions.tree import Expression

__all__ = ["Expression", "parse_expression"]
