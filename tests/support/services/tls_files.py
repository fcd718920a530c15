"""A private certificate authority with a server's and a client's certificate, made at test time."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of PEM files."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_tls_files(folder: Path) -> TlsFiles:
    """Make them in `folder`; the server's certificate is for 127.0.0.1."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of tests")])
    authority = _certificate(name, name, authority_key.public_key(), authority_key, is_authority=True)
    _write(folder / "authority.pem", authority)
    for kind in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, kind)])
        _write(folder / f"{kind}.pem", _certificate(subject, name, key.public_key(), authority_key))
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{kind}-key.pem").write_bytes(text)
    return TlsFiles(
        authority=folder / "authority.pem",
        server=folder / "server.pem",
        server_key=folder / "server-key.pem",
        client=folder / "client.pem",
        client_key=folder / "client-key.pem",
    )


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signing_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(tz=dt.timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(names, critical=False)
        .sign(signing_key, hashes.SHA256())
    )


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
