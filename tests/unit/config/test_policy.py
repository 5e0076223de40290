"""The remediation policy: what a file says, what is wrong with it, and what is published about it."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.config.policy import load_policy, load_policy_text
from nodeguard.config.policy_schema import PolicyFile, policy_json_schema
from nodeguard.config.shipped import shipped_policy
from nodeguard.config.yamltree import load_yaml
from nodeguard.model.errors import ConfigError
from nodeguard.model.policy import Budget, Exclude, Gangs, Policy, Storm

HEAD = "apiVersion: nodeguard.io/v1\nkind: RemediationPolicy\n"


def load(body: str) -> Policy:
    """The policy of a file with the usual head."""
    return load_policy_text(HEAD + body, "p.yaml")


def problems(body: str, head: str = HEAD) -> list[str]:
    """What is wrong with it; lines count from the head."""
    with pytest.raises(ConfigError) as caught:
        load_policy_text(head + body, "p.yaml")
    return [line.removeprefix("p.yaml:") for line in str(caught.value).splitlines()]


def test_shipped_policy_says_the_defaults() -> None:
    """The file that comes with nodeguard gives every key, with the value that it has when it is left out."""
    shipped = load_policy(shipped_policy())
    assert replace(shipped, hash="") == Policy()
    given_keys = load_yaml(shipped_policy().read_text(), "").single("").plain()
    assert isinstance(given_keys, dict)
    for name, info in PolicyFile.model_fields.items():
        section = info.annotation
        assert (info.alias or name) in given_keys
        if isinstance(section, type) and name != "metadata" and hasattr(section, "model_fields"):
            wanted = {one.alias for one in section.model_fields.values()} - {"poolLabel"}
            assert set(given_keys[info.alias]) == wanted


def test_what_is_left_out_has_its_default() -> None:
    """A head alone is a policy; a section with one key changes that key only."""
    assert replace(load(""), hash="") == Policy()
    assert load("budget: {maxNodes: 2}").budget == Budget(max_nodes=2)


def test_every_kind_of_value() -> None:
    """Shares, lengths of time, words, labels and lists, as people write them."""
    policy = load("""
accelerators: {resources: ["example.com/npu-?"], deviceClasses: []}
budget: {maxUnavailable: 2.5%, maxNodes: 1, window: 1h30m, poolLabel: example.com/pool}
storm: {nodes: 3, percent: 20, within: 500ms, cooldown: 1d}
gangs: {noSpare: evict-rank, apart: 0s, perDay: 0, recreateFailedJobs: true}
exclude: {nodeLabels: [lab, example.com/pool=spare, "empty="], namespaces: [kube-*], priorityClasses: []}
dryRun: true
""")
    assert (policy.resources, policy.device_classes) == (("example.com/npu-?",), ())
    assert policy.budget == Budget(max_unavailable_percent=2.5, max_nodes=1, window=5400.0,
                                   pool_label="example.com/pool")
    assert policy.storm == Storm(at_least=3, percent=20.0, within=0.5, cooldown=86400.0)
    assert policy.gangs == Gangs(no_spare="evict-rank", apart=0.0, per_day=0, recreate_failed_jobs=True)
    assert policy.exclude == Exclude(node_labels=(("lab", None), ("example.com/pool", "spare"), ("empty", "")),
                                     namespaces=("kube-*",), priority_classes=())
    assert policy.dry_run
    assert policy.is_accelerator("example.com/npu-1")


def test_every_mistake_is_told_at_once() -> None:
    """With line, column, section and the nearest valid word."""
    assert problems("""budgett: {}
budget:
  maxUnavailble: 5%
  maxNodes: 0
  window: 10
ruleBrake: {percent: 500%, nodes: true}
gangs:
  noSpare: holdd
  recreateFailedJobs: yes
accelerators: {resources: [], deviceClasses: []}
exclude: {nodeLabels: [3, "a b"], priorityClasses: [high-*]}
storm:
dryRun: 3
""") == [
        "3:1: unknown key 'budgett'; did you mean 'budget'?",
        "5:3: budget: unknown key 'maxUnavailble'; did you mean 'maxUnavailable'?",
        "6:13: budget: 'maxNodes' must be greater than or equal to 1",
        "7:11: budget: 'window' must be a length of time with its unit, for instance 500ms, 10s, 5m or 1h30m",
        "8:22: ruleBrake: 'percent' must be a share from 0% to 100%, such as 5%, not '500%'",
        "8:35: ruleBrake: 'nodes' must be a whole number, not True",
        "10:12: gangs: unknown choice 'holdd'; did you mean 'hold'?",
        "11:23: gangs: 'recreateFailedJobs' must be true or false, not 'yes'",
        ("12:15: accelerators: 'accelerators' needs a resource or a device class: without any, no pod would ever be "
         "moved"),
        "13:24: exclude: 'nodeLabels' must be text (put it in quotes), not 3",
        "13:27: exclude: 'nodeLabels' must be a label, such as example.com/pool or example.com/pool=lab, not 'a b'",
        "13:53: exclude: 'priorityClasses' must be a name, which holds no * and no blanks, not 'high-*'",
        "14:7: storm: 'storm' must be a mapping, not None",
        "15:9: 'dryRun' must be true or false, not 3",
    ]


@pytest.mark.parametrize(("text", "said"), [
    ("", "must hold one YAML document, not 0"),
    (HEAD + "---\n" + HEAD, "must hold one YAML document, not 2"),
    ("kind: RemediationPolicy\n", "key 'apiVersion' is missing"),
    ("apiVersion: nodeguard.io/v1\nkind: RuleSet\nrules: []\n", "'kind' must be 'RemediationPolicy', not 'RuleSet'"),
    (HEAD + "budget: {window: 10m, window: 5m}\n", "key 'window' is given twice"),
    (HEAD + "accelerators: {resources: [gpu]}\n", "such as nvidia.com/mig-*, not 'gpu'"),
    (HEAD + "budget: {poolLabel: a b}\n", "must be a label's name"),
    (HEAD + "budget: {maxUnavailable: -1}\n", "must be a share from 0% to 100%"),
    (HEAD + "release: {healthyFor: 40d}\n", "'healthyFor' must be at most 30d"),
    (HEAD + "storm: {percent: .nan}\n", "must be a share from 0% to 100%"),
    ("- a\n", "must be a mapping"),
])
def test_a_file_that_is_no_policy_is_refused(text: str, said: str) -> None:
    """With a sentence that says why."""
    assert any(said in line for line in problems(text, head=""))


@given(st.text(max_size=200) | st.from_regex(r"(budget|storm|gangs): \{[a-zA-Z]{1,9}: [\w%.\-]{1,9}\}", fullmatch=True))
def test_any_text_is_a_policy_or_a_list_of_mistakes(text: str) -> None:
    """Nothing but ConfigError comes out of what people may write."""
    for head in ("", HEAD):
        with contextlib.suppress(ConfigError):
            assert load_policy_text(head + text, "p.yaml").hash


def test_hash_is_of_what_it_says() -> None:
    """Comments, order and defaults written out change nothing; a number does."""
    first = load("budget: {maxNodes: 5}\nstorm: {nodes: 10}")
    assert first.hash == load("# words\nstorm: {nodes: 10}\nbudget: {maxNodes: 5}").hash == load("").hash
    assert re.fullmatch("[0-9a-f]{16}", first.hash)
    assert first.hash != load("budget: {maxNodes: 6}").hash


def test_directory_holds_one_policy_or_none(tmp_path: Path) -> None:
    """As a ConfigMap is mounted: one file, or none, which means the shipped policy; two are a mistake."""
    assert load_policy(tmp_path) == load_policy(shipped_policy())
    (tmp_path / "ours.yaml").write_text(HEAD + "dryRun: true")
    assert load_policy(tmp_path).dry_run
    (tmp_path / "theirs.yaml").write_text(HEAD)
    with pytest.raises(ConfigError, match=r"holds 2 \*\.yaml files; a policy is one file"):
        load_policy(tmp_path)


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    """A path that leads nowhere is no empty policy."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_policy(tmp_path / "none.yaml")


def test_schema_knows_every_key() -> None:
    """Each key of each section has a description, and no other key is allowed."""
    sections: dict[str, Any] = policy_json_schema()["$defs"]
    keys = 0
    for section in sections.values():
        assert section["additionalProperties"] is False
        keys += len(section["properties"])
        assert all({"description", "$ref"} & field.keys() for field in section["properties"].values())
    assert "maxUnavailable" in sections["BudgetSection"]["properties"]
    assert keys >= 38
