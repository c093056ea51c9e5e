"""Where completion reads names: from a service that runs. It starts none, and does not wait for a slow one."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from service.cli.connection.names import Names
from service.cli.connection.targets import api_key_of, running_service

_TIMEOUT_S = 1.0


@contextmanager
def known_names(given: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Names]:
    """The names that the service of a command line knows, for a `with` block; raises an error if none responds."""
    from service.cli import profiles

    profile = profiles.find(environ, given["--profile"]) if "--profile" in given else {}
    url = given.get("--url") or profile.get("url") or environ.get("FIRN_URL")
    tenants = given.get("--tenant") or profile.get("tenant") or environ.get("FIRN_TENANT", "").strip() or "default"
    key = api_key_of(profile.get("api_key"), environ)
    with closing(running_service(url or None, environ, _TIMEOUT_S, key)) as connection:
        yield Names(connection, tenants.partition(",")[0], given.get("--namespace") or "default")
