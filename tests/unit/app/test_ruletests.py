"""Rule tests: what they compare, and what is wrong with a file of them."""

from pathlib import Path

import pytest

from nodeguard.app.ruletests import load_cases, run_case
from nodeguard.model.errors import ConfigError

from .rig import rules

RULES = rules(
    {
        "name": "xid",
        "signal": "gpu_xid",
        "match": {"code": 48},
        "clear": {"after": "10m"},
        "effect": "evict",
        "action": "reset_gpu",
        "condition": "GpuMemoryFault",
    }
)
HEAD = """tests:
- name: a case
  rule: xid
  recording:
  - {at: 1, kmsg: "NVRM: Xid (PCI:0000:3b:00): 48, DBE"}
  expect:
"""


def failures(tmp_path: Path, *expect: str) -> list[str]:
    file = tmp_path / "t.yaml"
    file.write_text(HEAD + "".join(f"  - {line}\n" for line in expect))
    (case,) = load_cases([file])
    return [str(problem).removeprefix(str(file)) for problem in run_case(case, RULES).failures]


def test_expectations_that_hold(tmp_path: Path) -> None:
    """Before, at, and long after the recording; in any order; timers run up to the asked time."""
    assert (
        failures(
            tmp_path,
            "{at: 700, faults: [], effect: none, taint: null}",
            "{at: 0.5, faults: [], action: none}",
            '{at: 1, faults: [{rule: xid, device: "gpu/0000:3b:00.0", count: 1}], effect: evict, '
            'action: reset_gpu, conditions: {GpuMemoryFault: "True"}, taint: GpuMemoryFault}',
        )
        == []
    )


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ("{at: 2, effect: none}", ":7: a case: at 2 s: effect is evict, not none"),
        ("{at: 2, action: none}", "action is reset_gpu, not none"),
        ("{at: 2, taint: null}", "the taint is GpuMemoryFault, not None"),
        ('{at: 2, conditions: {GpuMemoryFault: "False"}}', "condition GpuMemoryFault is True, not False"),
        ("{at: 2, faults: []}", "open faults that are not expected: ['xid on gpu/0000:3b:00.0 (evict, reset_gpu)']"),
        ("{at: 2, faults: [{rule: xid, count: 2}]}", "no open fault is"),
        (
            "{at: 2, faults: [{rule: xid, sevrity: info}]}",
            "unknown key 'sevrity' of a fault (did you mean 'severity'?)",
        ),
        ("{at: 0.5, faults: [{rule: xid}]}", "open are none"),
    ],
)
def test_expectations_that_fail_say_how(tmp_path: Path, expect: str, words: str) -> None:
    """With the line of the expectation and the case's name."""
    assert words in "\n".join(failures(tmp_path, expect)).replace(":7:1:", ":7:")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cases: []\n", "a file of rule tests holds one list, `tests`"),
        ("tests:\n- {name: x}\n", ":2:3: a test needs name, recording and expect"),
        ("tests:\n- {name: x, recording: [], expect: [], expct: 3}\n", "unknown key 'expct' (did you mean 'expect'?)"),
        (
            "tests:\n- {name: x, recording: [], expect: [{at: 1, fault: []}]}\n",
            "unknown key 'fault' (did you mean 'faults'?)",
        ),
        ("tests:\n- {name: x, recording: [], expect: [{faults: []}]}\n", "an expectation needs 'at', in seconds"),
        ("tests:\n- {name: x, recording: [], expect: [3]}\n", "an expectation needs 'at', in seconds"),
        ("tests:\n- {name: x, recording: [], expect: [{at: 1, faults: 3}]}\n", "'faults' must be a list of mappings"),
        ("tests:\n- {name: x, recording: [], expect: [{at: 1, conditions: []}]}\n", "'conditions' must be a mapping"),
        ("tests: [\n", "1"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    """Every mistake at once, before anything runs."""
    file = tmp_path / "t.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_cases([file])
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_bad_recording_fails_its_case(tmp_path: Path) -> None:
    """The mistake is a failure with its line."""
    file = tmp_path / "t.yaml"
    file.write_text("tests:\n- name: x\n  recording:\n  - {at: 1, kmesg: x}\n  expect: [{at: 2, faults: []}]\n")
    (case,) = load_cases([file])
    (problem,) = run_case(case, RULES).failures
    assert (problem.line, problem.message) == (4, "unknown key 'kmesg' in an entry (did you mean 'kmsg'?)")
