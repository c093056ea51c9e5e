"""The examples of all commands: help, documents and tests show the same. Each belongs to the command that it calls."""

from service.cli.examples.others import OTHERS
from service.cli.examples.tables import TABLES

EXAMPLES = (*TABLES, *OTHERS)
