"""`firn dynamic …`: tables that are the results of queries, and are kept up to date."""

from service.cli.commands.dynamic.commands import COMMANDS

__all__ = ["COMMANDS"]
