"""Identities for one control plane: a CA, serving and client certificates, a token key.

Everything lives as long as the tests do; keys are EC P-256 because they are made in
microseconds, except the service-account key, which is RSA like everyone's.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

_LIFETIME = dt.timedelta(days=7)
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, as files."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority that writes what it signs into one directory."""

    def __init__(self, directory: Path, name: str = "nodeguard-test-ca") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_CA_USAGE, critical=True)
        self._cert = builder.sign(self._key, hashes.SHA256())
        self.bundle = self._write("ca", self._key, self._cert).cert

    def client(self, user: str, *groups: str) -> KeyPair:
        """A client certificate: the common name is the user, organizations its groups."""
        return self._issue(user, _name(user, *groups), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def node(self, name: str) -> KeyPair:
        """The client certificate of node `name`'s kubelet."""
        return self.client(f"system:node:{name}", "system:nodes")

    def server(self, file_name: str, *dns_names: str) -> KeyPair:
        """A serving certificate for loopback and `dns_names`."""
        names: tuple[x509.GeneralName, ...] = tuple(
            x509.DNSName(dns) for dns in ("localhost", *dns_names)
        )
        loopback = (
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            # The service IP of the API server, which its certificate must name.
            x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
        )
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        return self._issue(file_name, _name(file_name), usage, names + loopback)

    def _issue(
        self,
        file_name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: tuple[x509.GeneralName, ...],
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._cert.subject, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        if alternatives:
            names = x509.SubjectAlternativeName(alternatives)
            builder = builder.add_extension(names, critical=False)
        cert = builder.sign(self._key, hashes.SHA256())
        return self._write(file_name.replace(":", "-"), key, cert)

    def _write(self, file_name: str, key: _Key, cert: x509.Certificate) -> KeyPair:
        pair = KeyPair(self.directory / f"{file_name}.crt", self.directory / f"{file_name}.key")
        pair.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair


def service_account_key(path: Path) -> Path:
    """Write the key that signs service-account tokens; the API server verifies with it too."""
    _write_key(path, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    return path


def _name(common: str, *organizations: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common))
    return x509.Name(attributes)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _write_key(path: Path, key: _Key) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
