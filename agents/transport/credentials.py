"""What lets an actor trust its learner, and the learner its actors: a certificate that the learner
makes at its start, and a token that travels over TLS or a local socket only.
"""

from __future__ import annotations

import datetime
import secrets
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "learner"
"""The certificate's, whatever the learner's host is called: an actor trusts this certificate alone,
not an authority that signs names.
"""
VALID_FROM = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
VALID_UNTIL = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
"""Not by the clock: those of two nodes may be hours apart."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """In PEM. certificate: public; key: never leaves the learner."""

    certificate: str
    key: str = field(repr=False)


def make_certificate() -> Certificate:
    """Signed by itself, with a new key (P-256)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = signed.public_bytes(serialization.Encoding.PEM)
    return Certificate(certificate=public.decode(), key=private.decode())


def make_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)
