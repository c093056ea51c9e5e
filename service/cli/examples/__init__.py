"""The examples of all commands: help, documents and tests show the same. Each belongs to the command that it calls.

Every module here has some; a new one is found.
"""

from importlib import import_module
from pkgutil import iter_modules

from service.cli.command import CommandExample
from service.cli.examples.shared import PLACEHOLDERS

__all__ = ["EXAMPLES", "PLACEHOLDERS"]

EXAMPLES: tuple[CommandExample, ...] = tuple(
    example
    for module in iter_modules(__path__, f"{__name__}.")
    for example in getattr(import_module(module.name), "EXAMPLES", ())
)
