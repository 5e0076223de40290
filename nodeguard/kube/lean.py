"""Imports of the Kubernetes client without what it drags in for logins and streams that nodeguard does not use.

``kubernetes`` imports ``requests`` (for ``exec`` into pods) and ``oauthlib`` (for kubeconfigs whose user has the long
deprecated ``auth-provider: oidc``) whether they are used or not: 5 MB of every node's memory, measured. Login plugins
(``exec:``), tokens and client certificates need neither.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_UNUSED = ("oauthlib", "oauthlib.oauth2", "requests_oauthlib", "requests", "requests.utils")


class _Placeholder(ModuleType):
    """A module whose names can be imported and not used."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _unused


def _unused(*_: object, **__: object) -> None:
    raise ValueError("auth-provider oidc is not supported; log in with an exec plugin, a token or a certificate")


@contextmanager
def without_unused() -> Iterator[None]:
    """Let modules imported inside find placeholders for what is not loaded yet; afterwards all is as before."""
    made = [name for name in _UNUSED if name not in sys.modules]
    for name in made:
        sys.modules[name] = _Placeholder(name)
        parent, _, child = name.rpartition(".")
        if parent in made:
            setattr(sys.modules[parent], child, sys.modules[name])
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]
