"""Where the rules and the policy that come with nodeguard are."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped_rules_dir() -> Path:
    """``rules`` inside the package once installed (the wheel puts it there), beside the package in a checkout."""
    installed = _PACKAGE / "rules"
    return installed if installed.is_dir() else _PACKAGE.parent / "rules"


def shipped_policy() -> Path:
    """The remediation policy, a file."""
    return _PACKAGE / "config" / "policy.yaml"
