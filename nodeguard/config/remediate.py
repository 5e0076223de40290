"""What ``nodeguard remediate`` can be told: by flags, environment and a settings file, as the agent is."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nodeguard.config.options import AGENT_OPTIONS, Address, Option
from nodeguard.config.settings import resolve
from nodeguard.config.shipped import shipped_policy
from nodeguard.model.errors import ConfigError, Problem

_AGENT = {option.name: option for option in AGENT_OPTIONS}

REMEDIATE_OPTIONS: tuple[Option, ...] = (
    _AGENT["kubeconfig"],
    replace(_AGENT["kubeconfig"], name="policy", default=shipped_policy(), metavar="FILE",
            help="what the loop may do, how much of it at once, and to whom never; a file, or a directory with one; "
                 "default, also for an empty directory: the shipped policy"),
    replace(_AGENT["namespace"], help="namespace of nodeguard's own objects: the leader's Lease, the brake, incidents"),
    replace(_AGENT["node_name"], name="identity",
            help="name of this replica in the Lease, another for each (in a pod: metadata.name); default: the host's "
                 "name and the process's number"),
    replace(_AGENT["no_kube"], name="dry_run",
            help="decide and tell, in the log and by Events, and write nothing else but the leader's Lease, whatever "
                 "the policy says"),
    replace(_AGENT["listen"], default=Address("", 9821)),
    _AGENT["log_level"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediateSettings:
    """Everything ``nodeguard remediate`` can be told. See :data:`REMEDIATE_OPTIONS`."""

    kubeconfig: Path | None
    policy: Path
    namespace: str
    identity: str
    dry_run: bool
    listen: Address
    log_level: str


def resolve_remediate_settings(
    flags: Mapping[str, object], env: Mapping[str, str], file: Path | None = None,
) -> RemediateSettings:
    """The settings in force; ConfigError with every mistake. As for the agent's."""
    problems: list[Problem] = []
    values = resolve(REMEDIATE_OPTIONS, flags, env, file, problems)
    if problems:
        raise ConfigError(problems)
    return RemediateSettings(**{**values, "identity": values["identity"] or f"{os.uname().nodename}-{os.getpid()}"})
