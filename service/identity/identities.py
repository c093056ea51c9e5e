"""Who sends a request: by an API key or by a token. Without authentication, anyone."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from service.errors import Unauthenticated
from service.identity.api_keys import ApiKeys
from service.identity.key_text import PREFIX, KeyText
from service.model.call import Call, Credential
from service.model.identity.principal import ANYONE, LOCAL, TOKEN, Principal

_HOW = "send an API key or a token as Authorization: Bearer …, or an API key as X-Api-Key"


class ChecksTokens(Protocol):
    """What checks tokens; its library is loaded only if the settings say so."""

    def needs_reading(self, token: str) -> bool: ...
    def principal_of(self, token: str) -> Principal: ...


@dataclass(frozen=True)
class Identities:
    """Authenticates the senders of requests."""

    required: bool
    keys: ApiKeys
    tokens: ChecksTokens | None = None

    @property
    def lack_keys(self) -> bool:
        """Whether no request can be accepted until the first API key is created."""
        return self.required and self.tokens is None and not self.keys.exist()

    async def authenticate(self, call: Call) -> Principal:
        """The sender of a request; Unauthenticated if it shows no valid credential.

        A call of Firn's own has its principal already, as has one that was authenticated before.
        """
        if not self.required:
            return ANYONE
        if call.principal is not ANYONE:
            return call.principal
        text = presented(call.credential)
        if text.startswith(PREFIX):
            key = KeyText.read(text)
            if key is None:
                raise Unauthenticated("the API key is not complete, or a character of it is wrong; copy it again")
            if self.keys.known(key.id) is None:  # the ledger may be on another machine
                return await asyncio.to_thread(self.keys.principal_of, key)
            return self.keys.principal_of(key)
        return await self._of_token(text)

    async def _of_token(self, text: str) -> Principal:
        if self.tokens is None:
            raise Unauthenticated("this is not an API key, and this service accepts no tokens; send an API key")
        if self.tokens.needs_reading(text):
            return await asyncio.to_thread(self.tokens.principal_of, text)
        return self.tokens.principal_of(text)

    def of_owner(self, owner: str | None) -> Principal:
        """The creator of a schedule with the rights of now: those of its live API keys.

        The rights of a token cannot be asked for, so they are those of the token that created the schedule. A schedule
        that was created without authentication has no rights while it is required.
        """
        if not self.required:
            return ANYONE
        if owner is None:
            return Principal("nobody (it was created without authentication)")
        made = Principal.loads(owner)
        return made if made.credential in (TOKEN, LOCAL.credential) else self.keys.current(made.name)


def presented(credential: Credential) -> str:
    """The key or the token that a request shows; Unauthenticated if it shows none, or more than one."""
    found = set(credential.api_key)
    for value in credential.authorization:
        scheme, _, text = value.strip().partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(f"this kind of Authorization is not supported; {_HOW}")
        found.add(text.strip())
    if not found or found == {""}:
        raise Unauthenticated(f"this service needs to know who sends a request; {_HOW}")
    if len(found) > 1:
        raise Unauthenticated(f"the request has several credentials; {_HOW}")
    return found.pop()
