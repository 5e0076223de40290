"""The pod's service account over TLS: the token is sent, and a rotated one is used at once."""

import datetime as dt
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nodeguard.kube.client import KubeClient
from nodeguard.model.errors import ApiUnavailable


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers ``{}`` and keeps the Authorization header."""

    protocol_version = "HTTP/1.1"
    tokens: list[str]

    def do_GET(self) -> None:
        """Answer."""
        self.tokens.append(self.headers.get("Authorization", ""))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return folder / "ca.crt", folder / "key.pem"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, list[str]]]:
    """An HTTPS server: its port, and the Authorization headers it saw."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    tokens: list[str] = []
    handler = type("Bound", (Handler,), {"tokens": tokens})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as one:
        one.daemon_threads = True
        one.block_on_close = False
        one.socket = context.wrap_socket(one.socket, server_side=True)
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield one.server_port, tokens
        one.shutdown()
        thread.join(5)


def test_token_is_sent_and_read_again(tmp_path: Path, server: tuple[int, list[str]]) -> None:
    """Every request carries the token that the file holds then; a file that is gone is told as unavailable."""
    port, tokens = server
    (tmp_path / "token").write_text("one\n")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    client = KubeClient.in_cluster(tmp_path, environ)
    client.get("/version")
    (tmp_path / "token").write_text("two")
    client.get("/version")
    assert tokens == ["Bearer one", "Bearer two"]
    (tmp_path / "token").unlink()
    with pytest.raises(ApiUnavailable):
        client.get("/version")
    (tmp_path / "token").write_text("three")
    client.get("/version")
    assert tokens[-1] == "Bearer three"
    client.close()
