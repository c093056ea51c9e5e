"""Who can reach the service, and whether that is safe: checked before it listens on an address."""

import ipaddress
import socket
import ssl

from service.settings import Settings, SettingsError


def check_exposure(settings: Settings) -> str:
    """Raises `SettingsError` if anybody could send requests unnoticed, or read them on their way."""
    local = is_loopback(settings.host)
    where = f"{settings.environment}, listening on {settings.host or 'all addresses'}"
    harmless = local and settings.environment == "development"
    if not (settings.authenticates or settings.auth.allow_unauthenticated or harmless):
        raise SettingsError(
            f"authentication is off ({where}), so anybody who reaches the port could read and change all data; set "
            "FIRN_AUTH__REQUIRED=true and create a key with `firn key create NAME --role 'admin:*' --offline`, or set "
            "FIRN_AUTH__ALLOW_UNAUTHENTICATED=true if something else keeps others away"
        )
    encrypted = check_tls(settings)
    if not local and not encrypted and not settings.tls.allow_plain_http:
        raise SettingsError(
            f"TLS is off ({where}), so credentials and data could be read on their way; set FIRN_TLS__CERTIFICATE and "
            "FIRN_TLS__KEY, or FIRN_TLS__ALLOW_PLAIN_HTTP=true if a proxy or a private network protects them"
        )
    return f"{where}: authentication {'on' if settings.authenticates else 'off'}, TLS {'on' if encrypted else 'off'}"


def check_tls(settings: Settings) -> bool:
    """Whether TLS is on; raises `SettingsError` if its files cannot be used."""
    certificate, key = settings.tls.certificate, settings.tls.key
    if certificate is None and key is None:
        return False
    if certificate is None or key is None:
        missing = "FIRN_TLS__CERTIFICATE" if certificate is None else "FIRN_TLS__KEY"
        raise SettingsError(f"{missing} is not set; TLS needs the certificate and its key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as e:
        reason = getattr(e, "reason", None) or getattr(e, "strerror", None) or e
        raise SettingsError(
            f"FIRN_TLS__CERTIFICATE {certificate} and FIRN_TLS__KEY {key} cannot be used ({reason}); they must be "
            "a PEM file with the certificate and those above it, and its key without a password"
        ) from e
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def _no_password() -> str:
    raise ValueError("the key has a password")
