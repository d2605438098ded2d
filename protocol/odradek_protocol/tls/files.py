"""The sources of keys and certificates: files, environment variables, and references in
settings."""

from __future__ import annotations

import os
import re
from pathlib import Path

from odradek_protocol.tls import stores
from odradek_protocol.tls.settings import StoreSettings, TlsError

#: The limit of the size of a file with a keystore or a secret.
FILE_BYTES_MAX = 1_048_576
_REFERENCE = re.compile(r"\$\{(env|file|dir):(.*)\}", re.DOTALL)


def resolve(text: str) -> str:
    """The secret that a reference names, or the text itself if it is not a reference. TlsError if
    there is no such secret.

    ${env:NAME} is a variable of the environment, ${dir:FOLDER:FILE} the content of a file, and
    ${file:PATH:KEY} the value of a key in a file of KEY=VALUE lines, as in Kafka's own providers
    (KIP-297, KIP-421, KIP-887).
    """
    match = _REFERENCE.fullmatch(text.strip())
    if match is None:
        return text
    kind, what = match.groups()
    if kind == "env":
        value = os.environ.get(what)
        if value is None:
            raise TlsError(f"{text.strip()}: the environment has no variable {what}")
        return value
    path, colon, name = what.rpartition(":")
    if not colon:
        raise TlsError(f"{text.strip()} must be ${{{kind}:PATH:NAME}}")
    if kind == "dir":
        return read(str(Path(path) / name)).decode("utf-8", "replace").strip("\r\n")
    for line in read(path).decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() == name:
            return value.strip()
    raise TlsError(f"{text.strip()}: {path} has no key {name}")


def read(path: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """The content of a small file. TlsError, with the file's name, if the file is not readable, or
    too large."""
    try:
        with open(path, "rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise TlsError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > bytes_max:
        raise TlsError(f"{path} is larger than {bytes_max:,} bytes, the limit for such a file")
    return data


def load(store: StoreSettings, key_password: str) -> stores.Pem:
    """Read the certificates and the key of a store. Raises TlsError."""
    stores.check_given(store)
    key_password = resolve(key_password)
    if store.location:
        password = resolve(store.password)
        return stores.from_file(store, read(store.location), password, key_password)
    text = "\n".join(resolve(each) for each in (store.certificates, store.key))
    pem = stores.from_text(store, text, key_password)
    if not pem.certificates:
        raise TlsError(f"{store.name} has no certificate in PEM")
    return pem


def fingerprint(locations: tuple[str, ...]) -> tuple[object, ...]:
    """A value that changes when one of the files is changed, created or deleted."""
    found: list[object] = []
    for path in locations:
        try:
            status = os.stat(path)
        except OSError as error:
            found.append(error.errno)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
