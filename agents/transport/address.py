"""How an actor finds its learner and how the two prove who they are.

The learner writes its `Address` to the run's directory as JSON: where it listens, a token, and the
certificate that it made for itself. Anyone who can read that file can send experience, so the token
travels only over TLS or over a local socket.
"""

from __future__ import annotations

import datetime
import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from config.errors import BadInput

Written = TypeVar("Written")
LONGEST = 20_000
"""The longest accepted file, in characters."""
MOST_PORTS = 65_535


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a learner listens: host and port with its certificate (PEM), or the path of a local socket,
    or both. The socket costs less per message, but only processes on the learner's machine reach it.

    generation: the learner's; 0 if the address was given by hand (`--learner`). Raises `BadInput` if
    the token would travel in clear text.
    """

    token: str = field(repr=False)
    host: str = ""
    port: int = 0
    socket: str = ""
    certificate: str = field(default="", repr=False)
    generation: int = 0

    def __post_init__(self) -> None:
        if not self.socket and not self.host:
            raise BadInput("a learner's address has a host or a local socket")
        if self.host and not self.certificate:
            raise BadInput(
                f"the learner at {self} has no certificate; a token travels only over TLS or a "
                "local socket"
            )
        if not 0 <= self.port <= MOST_PORTS or self.generation < 0:
            raise BadInput(f"port {self.port}, generation {self.generation}: out of range")

    def __str__(self) -> str:
        if not self.host:
            return f"unix:{self.socket}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def from_here(self) -> Address:
        """The address with only one way to connect: the local socket if it exists on this machine, else
        host and port.
        """
        if self.host and self.socket:
            # The path of the learner's machine is written into the run's directory, and says
            # nothing elsewhere.
            near = Path(self.socket).is_socket()
            return replace(self, host="") if near else replace(self, socket="")
        return self


def address_to_text(address: Address) -> str:
    """Encode as one line of JSON, token included."""
    return json.dumps(asdict(address))


def address_from_text(text: str) -> Address:
    """Decode; raises `BadInput`, whose message never contains the token."""
    return from_text(text, Address, "a learner's address")


def from_text(text: str, written: type[Written], what: str) -> Written:
    """Decode a dataclass of strings and integers from JSON.

    Raises `BadInput`, whose message repeats nothing of the text, because it may hold a secret.
    """
    if len(text) > LONGEST:
        raise BadInput(f"{what} of {len(text)} characters; at most {LONGEST}")
    try:
        read: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"{what} that is no JSON") from None
    kinds = get_type_hints(written)
    # Types are compared exactly, because JSON's true would pass for the number 1 otherwise.
    if not isinstance(read, dict) or {name: type(one) for name, one in read.items()} != kinds:
        described = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
        raise BadInput(f"{what} is an object with {described}")
    return written(**read)


NAME = "learner"
"""The name in every certificate, whatever the learner's host is called: an actor trusts this one
certificate, not an authority that signs host names.
"""
VALID_FROM = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
VALID_UNTIL = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
"""Fixed dates, because the clocks of two nodes may be hours apart."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate (public) and its private key, both in PEM; the key never leaves the learner."""

    certificate: str
    key: str = field(repr=False)


def make_certificate() -> Certificate:
    """A self-signed certificate with a new P-256 key."""
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
