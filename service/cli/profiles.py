"""Profiles: names for services and tenants, in a file of the user that nobody else can read."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from service.cli.command import Args, UsageError
from service.cli.values import suggestion

Profile = dict[str, str]
"""`url`, `tenant` and `api_key`, or some of them."""


def path_of(environ: Mapping[str, str]) -> Path:
    """The file of the profiles."""
    folder = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config"
    return Path(folder) / "firn" / "profiles.json"


def read(environ: Mapping[str, str]) -> dict[str, Profile]:
    """All profiles by name."""
    path = path_of(environ)
    try:
        profiles = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{path} is not JSON: {e}; mend or delete it") from e
    is_valid = isinstance(profiles, dict) and all(
        isinstance(each, dict) and all(isinstance(value, str) for value in each.values()) for each in profiles.values()
    )
    if not is_valid:
        raise UsageError(f"{path} does not contain profiles; mend or delete it")
    return dict(profiles)


def write(environ: Mapping[str, str], profiles: Mapping[str, Profile]) -> None:
    """Replace all profiles. They may contain a login or an API key, so only the user can read the file."""
    path = path_of(environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(profiles, file, indent=2)
    new.replace(path)


def find(environ: Mapping[str, str], name: str) -> Profile:
    """The profile of a name."""
    profiles = read(environ)
    if name not in profiles:
        near = suggestion(name, profiles) if profiles else "`firn profile add` adds one"
        raise UsageError(f"there is no profile {name}; {near}")
    return profiles[name]


def apply(args: Args, environ: Mapping[str, str]) -> None:
    """Use what the profile says that the arguments name. Other options override it; it overrides variables."""
    profile = find(environ, args.profile)
    args.url = args.url or profile.get("url")
    args.api_key = profile.get("api_key")
    args.default_tenant = profile.get("tenant") or args.default_tenant
