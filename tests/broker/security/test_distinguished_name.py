"""Names in certificates, compared with the names that `X500Principal.getName()` of Java 17
returns."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Name, NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from certificates import Authority, subject
from odradek_broker.security.distinguished_name import CertificateError, subject_name

CA = Authority()
_TOGETHER = RelativeDistinguishedName(
    [
        NameAttribute(NameOID.COMMON_NAME, "x"),
        NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "y"),
    ]
)
_SUN = {
    "ORGANIZATIONAL_UNIT_NAME": "JavaSoft",
    "ORGANIZATION_NAME": "Sun Microsystems, Inc.",
    "COUNTRY_NAME": "US",
}
_PLACES = {
    "LOCALITY_NAME": "Zürich",
    "STATE_OR_PROVINCE_NAME": "ZH",
    "STREET_ADDRESS": "x+y",
    "DOMAIN_COMPONENT": "example",
    "USER_ID": "u1",
}


def der(name: Name) -> bytes:
    return CA.issue(name, ("h",)).certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        (subject("Duke", **_SUN), r"CN=Duke,C=US,O=Sun Microsystems\, Inc.,OU=JavaSoft"),
        (subject("a b", **_PLACES), r"CN=a b,UID=u1,DC=example,STREET=x\+y,ST=ZH,L=Zürich"),
        (
            subject("m", EMAIL_ADDRESS="a@b.c", SERIAL_NUMBER="17"),
            "CN=m,2.5.4.5=#13023137,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            Name([_TOGETHER, RelativeDistinguishedName([NameAttribute(NameOID.TITLE, "z")])]),
            "2.5.4.12=#0c017a,CN=x+OU=y",
        ),
        (subject(" lead and trail  "), "CN=\\ lead and trail\\ \\ "),
        (subject("#hash"), r"CN=\#hash"),
        (subject('q"<>;\\=,+'), r"CN=q\"\<\>\;\\\=\,\+"),
        (subject("mid#dle = x"), r"CN=mid\#dle \= x"),
        (subject("a  b   c"), "CN=a  b   c"),
        (Name([NameAttribute(NameOID.COMMON_NAME, "t61", _ASN1Type.T61String)]), "CN=t61"),
        (Name([NameAttribute(NameOID.COMMON_NAME, "v", _ASN1Type.VisibleString)]), "CN=#1a0176"),
        (
            Name([NameAttribute(ObjectIdentifier("1.3.6.1.4.1.99999.1"), "own")]),
            "1.3.6.1.4.1.99999.1=#0c036f776e",
        ),
    ],
)
def test_n21_a_distinguished_name_is_written_as_in_java(name: Name, written: str) -> None:
    assert subject_name(der(name)) == written


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(CertificateError):
        subject_name(data)


@given(st.integers(0, 700), st.integers(0, 255))
def test_a_damaged_certificate_has_a_name_or_none(position: int, byte: int) -> None:
    data = bytearray(_DUKE)
    data[position % len(data)] = byte
    try:
        subject_name(bytes(data))
    except CertificateError:
        return


_DUKE = der(subject("Duke", **_SUN))
