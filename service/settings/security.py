"""The settings about who may send requests, over which connections, and what is recorded of them."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from service.settings.kinds import KeptHours, Megabytes, SettingsSection, as_list


class JwtSettings(SettingsSection):
    """The issuer of the tokens that are accepted; none by default."""

    issuer: str | None = None
    audience: str | None = None
    algorithms: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ("RS256", "ES256")
    jwks_file: Path | None = None
    jwks_url: str | None = None
    jwks_refresh_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    leeway_s: Annotated[int, Field(ge=0, le=300)] = 30
    principal_claim: str = "sub"
    tenants_claim: str = "tenants"
    roles_claim: str = "roles"


class AuthSettings(SettingsSection):
    # By default only development needs no authentication.
    required: bool | None = None
    # To run without authentication elsewhere than in development on a loopback address.
    allow_unauthenticated: bool = False
    # Whether /docs and /openapi.json, which hold no data, need no credential.
    public_docs: bool = False
    jwt: JwtSettings = JwtSettings()


class TlsSettings(SettingsSection):
    certificate: Path | None = None
    key: Path | None = None
    # To listen beyond the loopback addresses without TLS.
    allow_plain_http: bool = False


class AuditSettings(SettingsSection):
    """The audit log. By default it is on if authentication is."""

    enabled: bool | None = None
    # JSON lines, in addition to the ledger; so many files of this size are kept.
    file: Path | None = None
    file_mb: Megabytes = 100
    files: Annotated[int, Field(ge=2, le=1000)] = 10
    retention_hours: KeptHours = 2160
    max_entries: Annotated[int, Field(ge=1, le=100_000_000)] = 1_000_000
