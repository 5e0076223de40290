"""Load rules and overrides: every mistake of every file at once, or the set to put in force.

A mistake is reported as ``file:line:column: rule: message``. Overrides are merged into the rules' text before
checking, so what an override breaks is found, and is reported where the override stands.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from nodeguard.config.build import build_rule, set_hash
from nodeguard.config.checks import check_rule, device_kinds
from nodeguard.config.documents import Override, Texts, read_overrides, read_rules
from nodeguard.config.draft import Draft, Finding, draft
from nodeguard.config.files import read_texts
from nodeguard.config.words import hint
from nodeguard.config.yamltree import Node
from nodeguard.model.errors import ConfigError, Problem
from nodeguard.model.rule import RuleSet

NO_LABELS: Mapping[str, str] = MappingProxyType({})


def load_rules(
    paths: Sequence[Path], *, overrides: Sequence[Path] = (), node_labels: Mapping[str, str] = NO_LABELS,
) -> RuleSet:
    """The rules in force on a node with ``node_labels``; ConfigError with every mistake.

    Paths are files or directories (see :func:`nodeguard.config.files.yaml_files`). Rules with ``mode: off`` are
    checked and left out.
    """
    rule_texts, unreadable = read_texts(paths, may_be_empty=False)
    override_texts, unreadable_overrides = read_texts(overrides, may_be_empty=True)
    return _load(rule_texts, override_texts, node_labels, [*unreadable, *unreadable_overrides])


def load_rule_texts(
    texts: Texts, *, overrides: Texts = (), node_labels: Mapping[str, str] = NO_LABELS,
) -> RuleSet:
    """As :func:`load_rules`, from (name, text) pairs in memory."""
    return _load(texts, overrides, node_labels, [])


def _load(texts: Texts, override_texts: Texts, labels: Mapping[str, str], problems: list[Problem]) -> RuleSet:
    bases = _by_name(read_rules(texts, problems), problems)
    patches = read_overrides(override_texts, problems)
    problems.extend(_misnamed(patches, bases))
    merges = [_Merge(base) for base in bases]
    by_name = {base.name: merge for base, merge in zip(bases, merges, strict=True)}
    for patch in patches:
        if patch.rule in by_name:
            by_name[patch.rule].take(patch, in_force=patch.applies(labels))
    drafts = [merge.result for merge in merges]
    for merge in merges:
        problems.extend(merge.problems)
    problems.extend(_mutes(drafts))
    if problems:
        raise ConfigError(sorted(set(problems)))
    rules = tuple(build_rule(one) for one in drafts if one.model.mode != "off")
    return RuleSet(rules, set_hash(rules))


def _by_name(nodes: Sequence[Node], problems: list[Problem]) -> list[Draft]:
    """A draft of each rule; a second rule of the same name is reported, checked by itself and left out."""
    first: dict[str, Draft] = {}
    in_file: Counter[str] = Counter()
    for node in nodes:
        in_file[node.at.file] += 1
        one = draft(node, f"rule {in_file[node.at.file]}")
        key = one.name if one.sound("name") else str(node.at)
        if key not in first:
            first[key] = one
            continue
        at = first[key].node.at
        problems.append(one.problem(Finding(["name"], f"the name is used already at {at.file}:{at.line}")))
        problems.extend(check_rule(one))
    return list(first.values())


def _misnamed(patches: Sequence[Override], bases: Sequence[Draft]) -> Iterator[Problem]:
    names = [base.name for base in bases]
    for patch in patches:
        if patch.rule not in names:
            yield Problem(*patch.at, patch.rule, f"there is no rule of this name{hint(patch.rule, names)}")
        if "name" in patch.fields:
            yield Problem(*patch.fields["name"].key, patch.rule, "an override cannot rename a rule")


class _Merge:
    """One rule and the overrides taken so far."""

    def __init__(self, base: Draft) -> None:
        self.result = base
        self.problems = check_rule(base)

    def take(self, patch: Override, *, in_force: bool) -> None:
        """Check the rule with ``patch``; keep the outcome only where the patch is in force on this node."""
        merged = draft(patch.merged(self.result.node), self.result.name)
        known = set(self.problems)
        found = check_rule(merged)
        added = [_moved(problem, patch) for problem in found if problem not in known]
        if in_force:
            self.result = merged
            # what the override repaired is no mistake any more
            self.problems = [problem for problem in self.problems if problem in found]
        self.problems.extend(added)


def _moved(problem: Problem, patch: Override) -> Problem:
    """A mistake that an override makes elsewhere in the rule is reported where the override names the rule."""
    if problem.file == patch.at.file:
        return problem
    return replace(problem, file=patch.at.file, line=patch.at.line, column=patch.at.column)


def _mutes(drafts: Sequence[Draft]) -> Iterator[Problem]:
    by_name = {one.name: one for one in drafts}
    for one in drafts:
        for index, name in enumerate(one.model.mutes or ()):
            message = _mute_mistake(one, name, by_name)
            if message:
                yield one.problem(Finding(["mutes", index], message))


def _mute_mistake(rule: Draft, muted: str, by_name: Mapping[str, Draft]) -> str:
    other = by_name.get(muted)
    if other is None:
        return f"there is no rule '{muted}'{hint(muted, by_name)}"
    if muted == rule.name:
        return "a rule cannot mute itself"
    if rule.name in _muted_by(other, by_name):
        return f"'{muted}' mutes this rule in turn: neither would ever be heard"
    comparable = rule.sound("signal", "across") and other.sound("signal", "across")
    if comparable and not device_kinds(rule) & device_kinds(other):
        return f"'{muted}' looks at {' or '.join(sorted(device_kinds(other)))}, this rule does not"
    return ""


def _muted_by(rule: Draft, by_name: Mapping[str, Draft]) -> set[str]:
    """Names that ``rule`` mutes, directly or through others."""
    reached: set[str] = set()
    waiting = [rule]
    while waiting:
        new = set(waiting.pop().model.mutes or ()) - reached
        reached |= new
        waiting.extend(by_name[name] for name in new if name in by_name)
    return reached
