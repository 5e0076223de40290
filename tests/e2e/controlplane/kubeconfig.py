"""Kubeconfig files: written for the tests' identities, read for a cluster of the user's."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from .certs import KeyPair
from .errors import ControlPlaneUnavailable

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Login:
    """What a kubeconfig's current context says: where, whom to trust, who one is."""

    server: str
    ca: Path | None
    token: str | None = None
    pair: KeyPair | None = None


def write(path: Path, login: Login) -> Path:
    """Write `login` as a kubeconfig; JSON, which is YAML too."""
    cluster: dict[str, str] = {"server": login.server}
    if login.ca is not None:
        cluster["certificate-authority"] = str(login.ca)
    user: dict[str, str] = {}
    if login.token is not None:
        user["token"] = login.token
    if login.pair is not None:
        user["client-certificate"] = str(login.pair.cert)
        user["client-key"] = str(login.pair.key)
    context = {"cluster": "test", "user": "test"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))
    return path


def read(path: Path, scratch: Path) -> Login:
    """The current context of `path`; inline certificates become files in `scratch`."""
    try:
        config = yaml.safe_load(path.read_text())
        current = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], current["cluster"])["cluster"]
        user = _named(config["users"], current["user"])["user"]
        server: str = cluster["server"]
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ControlPlaneUnavailable(f"cannot use kubeconfig {path}: {error!r}") from error
    if "exec" in user or "auth-provider" in user:
        raise ControlPlaneUnavailable(
            f"kubeconfig {path} logs in through a plugin; these tests need a token or a "
            "client certificate in it"
        )
    reader = _Files(path.parent, scratch)
    cert = reader.file(user, "client-certificate")
    key = reader.file(user, "client-key")
    pair = KeyPair(cert, key) if cert is not None and key is not None else None
    ca = reader.file(cluster, "certificate-authority")
    return Login(server, ca, user.get("token"), pair)


@dataclass(frozen=True)
class _Files:
    base: Path
    scratch: Path

    def file(self, entry: dict[str, str], key: str) -> Path | None:
        inline = entry.get(f"{key}-data")
        if inline is not None:
            target = self.scratch / f"{key}.pem"
            target.touch(mode=0o600)
            target.write_bytes(base64.b64decode(inline))
            return target
        named = entry.get(key)
        return None if named is None else self.base / named


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise KeyError(name)
