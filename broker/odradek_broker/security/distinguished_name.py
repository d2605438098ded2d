"""The name in a certificate, in the form that Java writes (RFC 2253), for
ssl.principal.mapping.rules and ACLs.

The name is read from the DER bytes, because Python's `ssl` has neither the object ids nor the types
of strings.
"""

from __future__ import annotations

from collections.abc import Iterator

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
#: The attributes with a keyword in RFC 2253. Any other attribute is written as its object id, with
#: its value in hex.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
#: The encodings, by tag, of the types of strings that Java writes as text; others are written in
#: hex.
_ENCODINGS = {
    12: "utf-8",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    27: "ascii",
    30: "utf-16-be",
}
_ESCAPED = frozenset(',=+<>#;"\\')


class CertificateError(ValueError):
    """The error for bytes that are not a valid certificate."""


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate in DER, last attribute first. Raises CertificateError."""
    try:
        (_, whole, _), *_ = _elements(certificate)
        (_, signed, _), *_ = _elements(whole)
        fields = [(tag, body) for tag, body, _ in _elements(signed)]
        if fields[0][0] == _VERSION:
            del fields[0]
        # The fields before the subject: serial number, algorithm, issuer, validity.
        tag, subject = fields[4]
        if tag != _SEQUENCE:
            raise CertificateError("the subject of a certificate is no name")
        names = [_relative_name(body) for tag, body, _ in _elements(subject) if tag == _SET]
    except (IndexError, ValueError) as error:
        raise CertificateError(f"no certificate: {error}") from error
    return ",".join(reversed(names))


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(tag, content, whole element) of each element in a sequence."""
    position = 0
    while position < len(data):
        start, tag, size = position, data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + size > len(data):
            raise CertificateError("an element is cut short")
        yield tag, data[position : position + size], data[start : position + size]
        position += size


def _relative_name(attributes: bytes) -> str:
    written = []
    for _, attribute, _ in _elements(attributes):
        (_, oid, _), (tag, value, whole) = list(_elements(attribute))[:2]
        written.append(_attribute(_dotted(oid), tag, value, whole))
    return "+".join(written)


def _attribute(oid: str, tag: int, value: bytes, whole: bytes) -> str:
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _ENCODINGS:
        return f"{keyword or oid}=#{whole.hex()}"
    text = value.decode(_ENCODINGS[tag], "replace")
    return f"{keyword}={_escape(text)}"


def _escape(text: str) -> str:
    escaped = "".join(
        "\\00" if char == "\0" else f"\\{char}" if char in _ESCAPED else char for char in text
    )
    # Blanks at the beginning and at the end are significant, so each of them is escaped.
    body = escaped.strip(" ")
    if not body:
        return "\\ " * len(escaped)
    before = len(escaped) - len(escaped.lstrip(" "))
    after = len(escaped) - len(escaped.rstrip(" "))
    return "\\ " * before + body + "\\ " * after


def _dotted(oid: bytes) -> str:
    numbers = []
    number = 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))
