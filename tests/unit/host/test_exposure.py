"""The service does not listen where anybody could use it unnoticed, unless it is told to."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from service.host.exposure import check_exposure, is_loopback
from service.settings import SettingsError, load

AUTH, OPEN = {"FIRN_AUTH__REQUIRED": "true"}, {"FIRN_AUTH__ALLOW_UNAUTHENTICATED": "true"}
PLAIN = {"FIRN_TLS__ALLOW_PLAIN_HTTP": "true"}
EVERYWHERE = {"FIRN_HOST": "0.0.0.0"}
PRODUCTION = {"FIRN_ENV": "production"}


@pytest.mark.parametrize(
    "environ",
    [
        *({}, {"FIRN_HOST": "localhost"}, {"FIRN_HOST": "127.0.0.2"}, AUTH, PRODUCTION),
        *({**EVERYWHERE, **AUTH, **PLAIN}, {**EVERYWHERE, **OPEN, **PLAIN}),
        {**PRODUCTION, "FIRN_AUTH__REQUIRED": "false", **OPEN},
    ],
)
def test_it_listens_where_it_is_safe_or_said_to_be(environ: dict[str, str]) -> None:
    check_exposure(load(environ))


@pytest.mark.parametrize(
    ("environ", "way_out"),
    [
        (EVERYWHERE, "FIRN_AUTH__REQUIRED=true"),
        ({**EVERYWHERE, **PLAIN}, "FIRN_AUTH__REQUIRED=true"),
        ({"FIRN_HOST": "::"}, "FIRN_AUTH__REQUIRED=true"),
        ({"FIRN_HOST": ""}, "FIRN_AUTH__REQUIRED=true"),
        ({**PRODUCTION, "FIRN_AUTH__REQUIRED": "false"}, "FIRN_AUTH__ALLOW_UNAUTHENTICATED=true"),
        ({**EVERYWHERE, **AUTH}, "FIRN_TLS__ALLOW_PLAIN_HTTP=true"),
        ({**EVERYWHERE, **OPEN}, "FIRN_TLS__CERTIFICATE"),
        ({**EVERYWHERE, **PRODUCTION}, "FIRN_TLS__CERTIFICATE"),
        ({"FIRN_TLS__KEY": "key.pem"}, "FIRN_TLS__CERTIFICATE is not set"),
        ({"FIRN_TLS__CERTIFICATE": "c.pem"}, "FIRN_TLS__KEY is not set"),
        ({"FIRN_TLS__CERTIFICATE": "/none/c.pem", "FIRN_TLS__KEY": "/none/k.pem"}, "No such file"),
    ],
)
def test_otherwise_it_does_not_start_and_says_the_way_out(environ: dict[str, str], way_out: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_exposure(load(environ))
    assert way_out in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("environment", "needed"), [("development", False), ("staging", True), ("production", True)])
def test_only_development_needs_no_credential_by_default(environment: str, needed: bool) -> None:
    assert load({"FIRN_ENV": environment}).authenticates == needed


def test_tls_needs_a_certificate_that_fits_its_key(tmp_path: Path) -> None:
    certificate, key, other = write_certificate(tmp_path)
    tls = {"FIRN_TLS__CERTIFICATE": str(certificate), "FIRN_TLS__KEY": str(key)}
    assert "TLS on" in check_exposure(load({**EVERYWHERE, **AUTH, **tls}))
    with pytest.raises(SettingsError, match="cannot be used"):
        check_exposure(load({**EVERYWHERE, **AUTH, **tls, "FIRN_TLS__KEY": str(other)}))


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("none", False)])
def test_an_address_is_local_if_nobody_else_can_connect_to_it(host: str, local: bool) -> None:
    assert is_loopback(host) == local


def write_certificate(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate for localhost, its key, and a key that is not."""
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem", folder / "other.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    for path, each in zip(paths[1:], (key, other), strict=True):
        pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.write_bytes(each.private_bytes(*pem))
    return paths
