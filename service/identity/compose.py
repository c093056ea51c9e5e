"""The parts of the service that know who sends requests."""

from collections.abc import Iterator
from contextlib import contextmanager

from service.identity.api_keys import ApiKeys
from service.identity.audit_log import audit_log
from service.identity.identities import Identities
from service.ledger.api_keys import ApiKeyRecords
from service.ledger.audit import AuditRecords
from service.ledger.database import url_of
from service.ledger.ledger import Ledger
from service.settings import Settings, SettingsError


def identity_parts(settings: Settings, ledger: Ledger, identities: Identities) -> tuple[object, ...]:
    return identities, identities.keys, audit_log(settings, AuditRecords(ledger))


@contextmanager
def local_api_keys(settings: Settings) -> Iterator[ApiKeys]:
    """The API keys in the ledger that the settings name, for a command on the machine; no service needs to run."""
    settings.home.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(url_of(settings))
    try:
        yield ApiKeys(ApiKeyRecords(ledger))
    finally:
        ledger.close()


def compose_identities(settings: Settings, ledger: Ledger) -> Identities:
    """The identities that the settings describe; SettingsError if these are not complete."""
    jwt, keys = settings.auth.jwt, ApiKeys(ApiKeyRecords(ledger))
    if not settings.authenticates:
        return Identities(False, keys)
    named = [name for name in ("issuer", "audience", "jwks_file", "jwks_url") if getattr(jwt, name)]
    if not named:
        return Identities(True, keys)
    from service.identity.key_sets import KeySets, parse, reader  # the library is loaded only if tokens are used
    from service.identity.tokens import Tokens

    read = reader(jwt.jwks_file, jwt.jwks_url)
    if jwt.jwks_file is not None:
        try:
            usable = parse(read())
        except (OSError, ValueError) as e:
            raise SettingsError(f"auth.jwt.jwks_file {jwt.jwks_file} cannot be read as a JSON Web Key Set: {e}") from e
        if not usable:
            raise SettingsError(f"auth.jwt.jwks_file {jwt.jwks_file} has no public key that signs tokens")
    return Identities(True, keys, Tokens(jwt, KeySets(read, jwt.jwks_refresh_s)))
