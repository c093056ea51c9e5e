"""Commands about who may send requests, who did, and what they see."""

from service.cli.commands.identities import keys, policies

COMMANDS = (*keys.COMMANDS, *policies.COMMANDS)
