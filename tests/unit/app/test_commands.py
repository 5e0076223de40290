"""``replay``, ``rules test`` and ``explain`` from the command line: exit codes, output, and errors as plain lines."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeguard.__main__ import main

LINE = "NVRM: Xid (PCI:0000:3b:00): 95, Uncontained"
CAP = pytest.CaptureFixture[str]


def run(capsys: CAP, *words: object) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of stdout, lines of stderr."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as error:  # argparse
        code = int(str(error.code))
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err.splitlines()


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """A short recording."""
    file = tmp_path / "night.jsonl"
    file.write_text(json.dumps({"at": 1, "kmsg": LINE}) + "\n" + json.dumps({"until": 60}) + "\n")
    return file


def test_replay_prints_json_lines(capsys: CAP, night: Path) -> None:
    """Every transition, then the end."""
    code, out, err = run(capsys, "replay", night, "--output", "json")
    opened, end = map(json.loads, out)
    assert (code, err) == (0, [])
    assert (opened["at"], opened["transition"], opened["rule"], opened["effect"]) == (
        1,
        "opened",
        "gpu-xid-uncontained-ecc",
        "evict",
    )
    assert end.keys() == {"at", "final"}
    assert (end["at"], end["final"]["effect"]) == (60, "evict")


def test_replay_prints_text_for_people(capsys: CAP, night: Path) -> None:
    """One line a transition, and how the node stands."""
    code, out, _ = run(capsys, "replay", night)
    assert code == 0
    assert "opened" in out[0]
    assert (
        out[1] == "at 60 s: effect evict, action reset_gpu, 1 open faults, taints: "
        "nodeguard.io/unhealthy=GpuMemoryFault:NoSchedule"
    )


def test_replay_with_rules_of_ones_own(capsys: CAP, night: Path, tmp_path: Path) -> None:
    """``--rules`` replaces the shipped ones, ``--overrides`` changes single ones."""
    rule = {
        "name": "mine",
        "signal": "gpu_xid",
        "severity": "info",
        "action": "none",
        "effect": "event",
        "clear": {"on": "never"},
    }
    (tmp_path / "rules.yaml").write_text(
        json.dumps({"apiVersion": "nodeguard.io/v1", "kind": "RuleSet", "rules": [rule]})
    )
    assert (
        json.loads(run(capsys, "replay", night, "--rules", tmp_path / "rules.yaml", "--output", "json")[1][0])["rule"]
        == "mine"
    )
    (tmp_path / "over.yaml").write_text(
        json.dumps(
            {
                "apiVersion": "nodeguard.io/v1",
                "kind": "Overrides",
                "overrides": {"gpu-xid-uncontained-ecc": {"mode": "observe"}},
            }
        )
    )
    row = json.loads(run(capsys, "replay", night, "--overrides", tmp_path / "over.yaml", "--output", "json")[1][0])
    assert (row["effect"], row["would"]) == ("event", "evict")


def test_replay_reports_every_mistake_of_a_recording(capsys: CAP, tmp_path: Path) -> None:
    """file:line:column each, exit 2, nothing on stdout."""
    file = tmp_path / "bad.yaml"
    file.write_text(
        '- {at: 1, kmesg: "x"}\n- {kmsg: "x"}\n-   {at: 0.5, host: 3}\n- {at: 2, nvml: {gpus: {GPU-a: {temp: 1}}}}\n'
    )
    code, out, err = run(capsys, "replay", file)
    assert (code, out) == (2, [])
    assert [line.split(" ")[1] for line in err] == [f"{file}:{place}:" for place in ("1:3", "2:3", "3:5", "4:3")]
    lines = tmp_path / "bad.jsonl"
    lines.write_text('{"at": 1}\n{"at": 2,, }\nnull\n{"at": NaN}\n')
    code, out, err = run(capsys, "replay", lines)
    assert (code, out) == (2, [])
    assert [line.split(" ")[1] for line in err] == [f"{lines}:2:10:", f"{lines}:3:1:", f"{lines}:4:1:"]


def test_replay_says_that_the_agent_judged_by_other_rules(capsys: CAP, tmp_path: Path) -> None:
    """On stderr, because the transitions may differ from what that agent made."""
    file = tmp_path / "r.jsonl"
    for rules, notes in (("0123456789abcdef", 1), ("", 0)):
        file.write_text(json.dumps({"at": 1, "recorded": {"version": "1", "rules": rules}}) + "\n")
        code, out, err = run(capsys, "replay", file)
        assert (code, len(out) > 0, len(err)) == (0, True, notes)


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "directory": lambda path: path.mkdir(),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 20),
    "empty": lambda path: path.write_bytes(b""),
    "nul": lambda path: path.write_bytes(b"\0" * 2000),
    "text": lambda path: path.write_text("just words"),
    "mapping": lambda path: path.write_text("{}"),
}


@pytest.mark.parametrize("suffix", ["yaml", "jsonl"])
@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_is_no_recording_is_one_plain_line(capsys: CAP, tmp_path: Path, kind: str, suffix: str) -> None:
    """With its name, exit 2, no traceback."""
    file = tmp_path / f"{kind}.{suffix}"
    BAD_FILES[kind](file)
    code, out, err = run(capsys, "replay", file)
    assert (code, out, len(err)) == (2, [], 1)
    assert err[0].startswith("nodeguard: ")
    assert str(file) in err[0]


@pytest.mark.parametrize(
    "words",
    [
        ("replay",),
        ("replay", "x", "--output", "xml"),
        ("replay", "x", "--soak"),
        ("rules",),
        ("rules", "tset"),
        ("explain",),
        ("explain", "planet", "x"),
        ("nothing",),
        (),
    ],
)
def test_bad_flags_are_exit_2(capsys: CAP, words: tuple[str, ...]) -> None:
    """With how it is used."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, [])
    assert err[0].startswith("usage: nodeguard")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("replay", "NIGHT", "--soak", "soon"), "--soak: "),
        (("replay", "NIGHT", "--rules", "/does/not/exist"), "/does/not/exist"),
        (("rules", "test", "/does/not/exist"), "/does/not/exist"),
        (("explain", "rule", "gpu-lots"), "no rule is called 'gpu-lots'"),
        (("explain", "signal", "gpu_xids"), "no signal is called 'gpu_xids'"),
        (("explain", "xid", "many"), "an Xid is a number, not 'many'"),
    ],
)
def test_a_users_mistake_is_one_plain_line(capsys: CAP, night: Path, words: tuple[str, ...], said: str) -> None:
    """Exit 2."""
    code, out, err = run(capsys, *(str(night) if word == "NIGHT" else word for word in words))
    assert (code, out, len(err)) == (2, [], 1)
    assert said in err[0]


def test_rules_test_passes_on_the_shipped_rules(capsys: CAP) -> None:
    """Exit 0 and one line."""
    code, out, err = run(capsys, "rules", "test")
    assert (code, err, len(out)) == (0, [], 1)
    assert out[0].endswith("rule tests passed, 0 failed")


def test_rules_test_fails_with_the_place(capsys: CAP, tmp_path: Path) -> None:
    """Exit 1, one line a failure."""
    file = tmp_path / "t.yaml"
    file.write_text(
        f"tests:\n- name: wrong\n  recording: [{{at: 1, kmsg: '{LINE}'}}]\n  expect:\n  - {{at: 2, effect: none}}\n"
    )
    code, out, _ = run(capsys, "rules", "test", file)
    assert (code, out) == (
        1,
        [f"{file}:5:1: wrong: at 2 s: effect is evict, not none", "0 rule tests passed, 1 failed"],
    )
    file.write_text("tests:\n- {name: wrong}\n")
    assert run(capsys, "rules", "test", file)[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rule", "gpu-lost"), "gpu_lost"),
        (("signal", "gpu_xid"), "gpu-xid-application"),
        (("xid", "79"), "Xid 79"),
        (("xid", "4242"), "is not in NVIDIA's list"),
    ],
)
def test_explain_knows_what_the_agent_judges_by(capsys: CAP, words: tuple[str, str], said: str) -> None:
    """Rules, signals and Xids."""
    code, out, err = run(capsys, "explain", *words)
    assert (code, err) == (0, [])
    assert said in "\n".join(out)
