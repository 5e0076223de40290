"""The settings of ``nodeguard remediate``: the agent's three places and their order, with options of its own."""

import os
from dataclasses import fields
from pathlib import Path

import pytest

from nodeguard.config.options import Address
from nodeguard.config.remediate import REMEDIATE_OPTIONS, RemediateSettings, resolve_remediate_settings
from nodeguard.config.shipped import shipped_policy
from nodeguard.model.errors import ConfigError


def test_defaults() -> None:
    """Nothing must be given; two replicas on one host are two, for whoever has the leader's name leads."""
    assert resolve_remediate_settings({}, {}) == RemediateSettings(
        kubeconfig=None, policy=shipped_policy(), namespace="nodeguard",
        identity=f"{os.uname().nodename}-{os.getpid()}", dry_run=False,
        listen=Address("", 9821), log_level="info")


def test_every_option_is_a_setting() -> None:
    """No option is forgotten on the way."""
    assert [option.name for option in REMEDIATE_OPTIONS] == [field.name for field in fields(RemediateSettings)]


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    """The settings file is the weakest of the three."""
    file = tmp_path / "settings.yaml"
    file.write_text("identity: file\nnamespace: file\npolicy: /file\ndry-run: true\n")
    env = {"NODEGUARD_NAMESPACE": "env", "NODEGUARD_POLICY": "/env", "NODEGUARD_SETTINGS": str(file)}
    found = resolve_remediate_settings({"policy": "/flag"}, env)
    assert (found.identity, found.namespace, found.policy, found.dry_run) == ("file", "env", Path("/flag"), True)


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    """From all three places, with the nearest word; the agent's settings are none of the loop's."""
    file = tmp_path / "s.yaml"
    file.write_text("polcy: /x\nsoak: 10s\n")
    with pytest.raises(ConfigError) as caught:
        resolve_remediate_settings({"listen": "9821"}, {"NODEGUARD_LOG_LEVEL": "loud"}, file)
    assert str(caught.value).splitlines() == [
        "--listen: must be ADDR:PORT with a port of at most 65535, such as :9820, not '9821'",
        f"{file}:1:1: unknown setting 'polcy'; did you mean 'policy'?",
        (f"{file}:2:1: unknown setting 'soak'; use one of: kubeconfig, policy, namespace, identity, dry-run, listen, "
         "log-level"),
        "NODEGUARD_LOG_LEVEL: unknown level 'loud'; use one of: debug, info, warning, error",
    ]
