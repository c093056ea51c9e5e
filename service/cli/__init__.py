"""The `firn` command. Only the standard library is imported before a command runs: `firn --help` must not wait."""

from service.cli.main import main

__all__ = ["main"]
