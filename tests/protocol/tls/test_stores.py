"""Keystores and truststores, cipher suites and secrets, without a handshake."""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from pathlib import Path

import pytest

from certificates import Authority
from odradek_protocol.tls import contexts, files
from odradek_protocol.tls.contexts import openssl_name
from odradek_protocol.tls.settings import StoreSettings, TlsError, TlsSettings, tls_settings

CA = Authority()
OWN = CA.issue()


def keystore(**given: str) -> StoreSettings:
    return StoreSettings(name="ssl.keystore", **given)


def test_n19_certificates_on_one_line_or_many_are_read(tmp_path: Path) -> None:
    lines = OWN.pem + CA.pem
    for text in (lines, lines.replace("\n", " "), lines.replace("\n", ""), f"words\n{lines}words"):
        pem = files.load(keystore(type="PEM", certificates=text, key=OWN.key()), "")
        assert [ssl.PEM_cert_to_DER_cert(each) for each in pem.certificates] == [
            ssl.PEM_cert_to_DER_cert(each) for each in (OWN.pem, CA.pem)
        ]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_n19_cipher_suites_may_have_their_standard_names(name: str, ours: str) -> None:
    assert openssl_name(name) == ours
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(ours)


def test_n19_a_tls_version_without_a_configured_suite_is_not_offered() -> None:
    older = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)
    context = contexts.client_context(TlsSettings(cipher_suites=older))
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(TlsError, match=r"ssl\.enabled\.protocols"):
        contexts.client_context(TlsSettings(cipher_suites=older, enabled_protocols=("TLSv1.3",)))


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can choose")
def test_n19_a_choice_of_tls_1_3_suites_is_refused_if_python_cannot_choose() -> None:
    with pytest.raises(TlsError, match="cannot choose"):
        contexts.client_context(TlsSettings(cipher_suites=("TLS_AES_256_GCM_SHA384",)))


def test_n19_a_key_is_read_on_systems_without_files_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no files in memory. The file for OpenSSL is removed immediately, even if OpenSSL
    cannot use it."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = keystore(type="PEM", certificates=OWN.pem, key=OWN.key("secret"))
    contexts.server_context(TlsSettings(keystore=store, key_password="secret"))
    with pytest.raises(TlsError, match="does not open"):
        contexts.server_context(TlsSettings(keystore=store, key_password="wrong"))
    assert list(tmp_path.iterdir()) == []


def test_n19_the_error_for_pkcs12_without_its_package_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.p12"
    path.write_bytes(OWN.pkcs12("p"))
    store = keystore(type="PKCS12", location=str(path), password="p")
    assert files.load(store, "").key
    with pytest.raises(TlsError, match=r"check ssl\.keystore\.password") as caught:
        files.load(keystore(type="PKCS12", location=str(path), password="wrong"), "")
    assert "wrong" not in str(caught.value)
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(TlsError, match=r"odradek\[tls\].* openssl pkcs12 -in "):
        files.load(store, "")


def test_secrets_come_from_the_environment_and_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TLS_PASSWORD", "from the environment")
    (tmp_path / "secrets.properties").write_text("other=1\nkey.password = in = a file\n", "utf-8")
    (tmp_path / "mounted").write_text("alone\n", "utf-8")
    assert files.resolve("${env:TLS_PASSWORD}") == "from the environment"
    assert files.resolve(f"${{file:{tmp_path}/secrets.properties:key.password}}") == "in = a file"
    assert files.resolve(f"${{dir:{tmp_path}:mounted}}") == "alone"
    assert files.resolve("plain ${env:TLS_PASSWORD}") == "plain ${env:TLS_PASSWORD}"
    for text, words in (
        ("${env:NO_SUCH_VARIABLE}", "no variable"),
        (f"${{file:{tmp_path}/secrets.properties:none}}", "no key none"),
        (f"${{dir:{tmp_path}:none}}", "cannot read"),
        ("${file:nothing}", "PATH:NAME"),
    ):
        with pytest.raises(TlsError, match=words):
            files.resolve(text)


def test_a_too_large_keystore_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(files.FILE_BYTES_MAX + 1))
    with pytest.raises(TlsError, match="larger"):
        files.load(keystore(location=str(path)), "")


def test_tls_settings_hide_secrets() -> None:
    settings = tls_settings(
        {
            "ssl_keystore_type": "pem",
            "ssl_keystore_key": "SECRET",
            "ssl_key_password": "SECRET",
            "ssl_truststore_password": "SECRET",
            "ssl_enabled_protocols": ("TLSv1.3",),
            "something_else": "x",
        }
    )
    assert settings.keystore.type == "PEM" and settings.keystore.key == "SECRET"
    assert settings.enabled_protocols == ("TLSv1.3",)
    assert "SECRET" not in repr(settings)
