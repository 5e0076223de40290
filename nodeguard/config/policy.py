"""Load the remediation policy: every mistake at once as ``file:line:column: section: message``, or the policy."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nodeguard.config.build import digest
from nodeguard.config.files import read_texts
from nodeguard.config.policy_schema import PolicyFile, Section
from nodeguard.config.shipped import shipped_policy
from nodeguard.config.translate import problems_of
from nodeguard.config.yamltree import load_yaml
from nodeguard.model.errors import ConfigError, Problem
from nodeguard.model.policy import Budget, Drain, Exclude, Gangs, Policy, Release, RuleBrake, Storm


def load_policy(path: Path) -> Policy:
    """The policy in a file, or in the only YAML file of a directory; ConfigError with every mistake.

    An empty directory, as an empty ConfigMap is mounted, means the shipped policy.
    """
    texts, problems = read_texts([path], may_be_empty=True)
    if len(texts) > 1:
        problems.append(Problem(str(path), 0, 0, "", f"holds {len(texts)} *.yaml files; a policy is one file"))
    if problems:
        raise ConfigError(problems)
    if not texts:
        return load_policy(shipped_policy())
    ((file, text),) = texts
    return load_policy_text(text, file)


def load_policy_text(text: str, file: str) -> Policy:
    """As :func:`load_policy`, from text in memory; ``file`` is the name that mistakes carry."""
    document = load_yaml(text, file).single(file)
    try:
        model = PolicyFile.model_validate(document.plain())
    except ValidationError as error:
        raise ConfigError(list(problems_of(error, PolicyFile, document, _section))) from error
    policy = _policy(model)
    return replace(policy, hash=digest(asdict(policy)))


def _section(loc: Sequence[object]) -> str:
    """The section of the file that a mistake is in; empty for the file itself."""
    found = next((info.annotation for name, info in PolicyFile.model_fields.items()
                  if loc and loc[0] in (name, info.alias)), None)
    is_section = isinstance(found, type) and issubclass(found, BaseModel)
    return str(loc[0]) if is_section else ""


def _policy(model: PolicyFile) -> Policy:
    labels = [label.partition("=") for label in model.exclude.node_labels]
    exclude = _given(model.exclude)
    if "node_labels" in exclude:
        exclude["node_labels"] = tuple((name, value if equals else None) for name, equals, value in labels)
    return Policy(
        **_given(model.accelerators), budget=Budget(**_given(model.budget)), storm=Storm(**_given(model.storm)),
        rule_brake=RuleBrake(**_given(model.rule_brake)), drain=Drain(**_given(model.drain)),
        gangs=Gangs(**_given(model.gangs)), release=Release(**_given(model.release)), exclude=Exclude(**exclude),
        dry_run=model.dry_run)


def _given(section: Section) -> dict[str, Any]:
    """The fields that the file gives, as the model holds them."""
    fields = section.model_dump(exclude_unset=True)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
