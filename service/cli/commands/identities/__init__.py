"""Commands about who may send requests, and who did."""

from service.cli.commands.identities.keys import COMMANDS as COMMANDS
