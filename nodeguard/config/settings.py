"""Settings, put together from flags, environment and a settings file; a flag beats all, then in that order.

Unknown environment variables are ignored, because Kubernetes itself sets ``NODEGUARD_…`` ones for a Service of
that name; an unknown key in the file is a mistake.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeguard.config.files import read_text
from nodeguard.config.options import AGENT_OPTIONS, Address, ExporterAddress, Option
from nodeguard.config.ports import ExpectedPort
from nodeguard.config.words import hint, shown
from nodeguard.config.yamltree import Node, load_yaml
from nodeguard.model.errors import ConfigError, Problem

SETTINGS_VARIABLE = "NODEGUARD_SETTINGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Everything ``nodeguard agent`` can be told. See :data:`nodeguard.config.options.AGENT_OPTIONS`."""

    node_name: str
    kubeconfig: Path | None
    no_kube: bool
    namespace: str
    kmsg: Path
    kmsg_any_facility: bool
    nvml_library: Path | None
    no_nvml: bool
    exporter: tuple[ExporterAddress, ...]
    no_pcie: bool
    no_host: bool
    host_path: tuple[str, ...]
    kubelet_healthz: str
    container_runtime: str | None
    expect_gpus: int | None
    expect_nvlinks: int | None
    no_rdma: bool
    rdma_exclude: tuple[str, ...]
    expect_rdma: tuple[ExpectedPort, ...]
    sys_root: Path
    proc_root: Path
    kubelet_root: Path
    pods_log_root: Path
    state_dir: Path
    rules: tuple[Path, ...]
    overrides: tuple[Path, ...]
    rules_poll: float
    """Seconds."""
    soak: float
    """Seconds; 0: none."""
    listen: Address
    log_level: str


def resolve_agent_settings(
    flags: Mapping[str, object], env: Mapping[str, str], file: Path | None = None,
) -> AgentSettings:
    """The settings in force; ConfigError with every mistake.

    ``flags`` are by option name; None means not given. ``file`` is ``--settings``; None: the environment's
    ``NODEGUARD_SETTINGS``, if set. An empty environment variable counts as not set.
    """
    problems: list[Problem] = []
    values = resolve(AGENT_OPTIONS, flags, env, file, problems)
    if values["node_name"] is None and values["no_kube"]:
        values["node_name"] = os.uname().nodename
    if values["node_name"] is None:
        message = "the node's name is needed: give --node-name NAME or NODEGUARD_NODE_NAME (in a pod: spec.nodeName)"
        problems.append(Problem("--node-name", 0, 0, "", message))
    if problems:
        raise ConfigError(problems)
    return AgentSettings(**values)


def resolve(
    options: Sequence[Option], flags: Mapping[str, object], env: Mapping[str, str], file: Path | None,
    problems: list[Problem],
) -> dict[str, Any]:
    """The value of every option; mistakes go to ``problems``."""
    if file is None and env.get(SETTINGS_VARIABLE):
        file = Path(env[SETTINGS_VARIABLE])
    in_file = _from_file(file, options, problems) if file is not None else {}
    return {option.name: _value(option, flags, env, in_file, problems) for option in options}


def _value(
    option: Option,
    flags: Mapping[str, object],
    env: Mapping[str, str],
    in_file: Mapping[str, Node],
    problems: list[Problem],
) -> object:
    """The strongest given value. Weaker ones are checked too: a mistake should not wait for the flag to go."""
    values = [option.default]
    if option.name in in_file:
        node = in_file[option.name]
        values.append(_parsed(option, node.plain(), Problem(*node.at, option.key, ""), problems))
    if env.get(option.variable):
        values.append(_parsed(option, env[option.variable], Problem(option.variable, 0, 0, "", ""), problems))
    if flags.get(option.name) is not None:
        values.append(_parsed(option, flags[option.name], Problem(option.flag, 0, 0, "", ""), problems))
    return values[-1]


def _parsed(option: Option, value: object, where: Problem, problems: list[Problem]) -> object:
    try:
        return option.parse(value)
    except ValueError as error:
        problems.append(Problem(where.file, where.line, where.column, where.subject, str(error)))
        return option.default


def _from_file(file: Path, options: Sequence[Option], problems: list[Problem]) -> dict[str, Node]:
    try:
        loaded = load_yaml(read_text(file), str(file))
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        problems.append(Problem(str(file), 0, 0, "", reason))
        return {}
    problems.extend(loaded.problems)
    by_key = {option.key: option.name for option in options}
    found: dict[str, Node] = {}
    for document in loaded.documents:
        if not isinstance(document.value, Mapping):
            problems.append(Problem(*document.at, "", "must be a mapping of settings"))
        for key, entry in document.entries().items():
            name = by_key.get(str(key).replace("_", "-"))
            if name is None:
                problems.append(Problem(*entry.key, "", f"unknown setting {shown(key)}{hint(key, by_key)}"))
            else:
                found[name] = entry.node
    return found
