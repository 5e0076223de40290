"""The agent's settings: three places, one order, every mistake at once."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.config.options import AGENT_OPTIONS, Address, ExporterAddress, Option
from nodeguard.config.settings import AgentSettings, resolve_agent_settings
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.model.errors import ConfigError

NAMED = {"node_name": "n1"}


def problems(flags: dict[str, object], env: dict[str, str], file: Path | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve_agent_settings(flags, env, file)
    return str(caught.value).splitlines()


def test_defaults() -> None:
    """A node's name is all that must be given."""
    agent = resolve_agent_settings(NAMED, {})
    assert agent == AgentSettings(
        node_name="n1", kubeconfig=None, no_kube=False, namespace="nodeguard", kmsg=Path("/dev/kmsg"),
        kmsg_any_facility=False, nvml_library=None, no_nvml=False, exporter=(), expect_gpus=None,
        expect_nvlinks=None,
        no_pcie=False, no_host=False, kubelet_healthz="http://127.0.0.1:10248/healthz", container_runtime=None,
        host_path=("/", "/var/lib/kubelet", "/var/lib/containerd", "/var/log"),
        no_rdma=False, rdma_exclude=(), expect_rdma=(),
        sys_root=Path("/sys"), proc_root=Path("/proc"), kubelet_root=Path("/var/lib/kubelet"),
        pods_log_root=Path("/var/log/pods"),
        state_dir=Path("/var/lib/nodeguard"), rules=(shipped_rules_dir(),), overrides=(), rules_poll=1.0, soak=600.0,
        listen=Address("", 9820), log_level="info")


def test_a_flag_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    """The settings file is the weakest of the three."""
    file = tmp_path / "settings.yaml"
    file.write_text("soak: 1m\nlisten: ':1'\nnamespace: from-file\nkmsg_any_facility: true\nrules: [/a, /b]\n")
    env = {"NODEGUARD_SOAK": "2m", "NODEGUARD_LISTEN": "[::1]:2", "NODEGUARD_SETTINGS": str(file),
           "NODEGUARD_OVERRIDES": "/c:/d", "NODEGUARD_NAMESPACE": "", "NODEGUARD_PORT": "tcp://10.0.0.1:80"}
    agent = resolve_agent_settings({**NAMED, "soak": "3m", "no_kube": True, "kubeconfig": None}, env)
    assert (agent.soak, agent.listen, agent.namespace) == (180.0, Address("::1", 2), "from-file")
    assert (agent.kmsg_any_facility, agent.no_kube) == (True, True)
    assert agent.rules == (Path("/a"), Path("/b"))
    assert agent.overrides == (Path("/c"), Path("/d"))


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    """From flags, environment and file together; a mistake behind a stronger value counts too."""
    file = tmp_path / "s.yaml"
    file.write_text("state-dirr: /x\nsoak: 10\nkmsg-any-facility: 3\n")
    assert problems({"listen": "9820", "soak": "1s"}, {"NODEGUARD_LOG_LEVEL": "inf"}, file) == [
        "--listen: must be ADDR:PORT with a port of at most 65535, such as :9820, not '9820'",
        ("--node-name: the node's name is needed: give --node-name NAME or NODEGUARD_NODE_NAME (in a pod: "
        "spec.nodeName)"),
        f"{file}:1:1: unknown setting 'state-dirr'; did you mean 'state-dir'?",
        f"{file}:2:7: soak: must be a length of time with its unit, for instance 500ms, 10s, 5m or 1h30m",
        f"{file}:3:20: kmsg-any-facility: must be true or false, not 3",
        "NODEGUARD_LOG_LEVEL: unknown level 'inf'; did you mean 'info'?",
    ]


def test_a_missing_settings_file_is_a_mistake(tmp_path: Path) -> None:
    """A file that was named has to be there."""
    assert problems(dict(NAMED), {}, tmp_path / "none") == [
        f"{tmp_path / 'none'}: cannot be read: No such file or directory"]


def test_without_kubernetes_the_host_names_itself() -> None:
    """``--no-kube`` needs no Node object's name."""
    assert resolve_agent_settings({}, {"NODEGUARD_NO_KUBE": "yes"}).node_name


def test_the_table_has_a_row_for_every_field() -> None:
    """Adding a setting is one row and one field; flags, variables and keys are spelt alike."""
    assert {option.name for option in AGENT_OPTIONS} == set(AgentSettings.__dataclass_fields__)
    row = next(option for option in AGENT_OPTIONS if option.name == "node_name")
    assert (row.flag, row.key, row.variable) == ("--node-name", "node-name", "NODEGUARD_NODE_NAME")


@settings(deadline=None)
@given(st.sampled_from(AGENT_OPTIONS), st.text())
def test_any_text_for_any_setting(option: Option, text: str) -> None:
    """Settings or a ConfigError."""
    with contextlib.suppress(ConfigError):
        resolve_agent_settings({**NAMED, option.name: text}, {})


def test_exporters_are_named_with_their_pages() -> None:
    """A list, or text with commas; the name is the mapping, or has one beside it."""
    flags = {**NAMED, "exporter": ["dcgm=http://127.0.0.1:9400/metrics", "second:dcgm=https://[::1]:9401/x?a=b"]}
    assert resolve_agent_settings(flags, {}).exporter == (
        ExporterAddress("dcgm", "dcgm", "http://127.0.0.1:9400/metrics"),
        ExporterAddress("second", "dcgm", "https://[::1]:9401/x?a=b"))
    env = {"NODEGUARD_EXPORTER": "amd=http://a:1/m, ascend=http://b:2/m"}
    assert [one.name for one in resolve_agent_settings(NAMED, env).exporter] == ["amd", "ascend"]


@pytest.mark.parametrize(("given", "sentence"), [
    ("dcgm", "must be NAME=URL or NAME:MAPPING=URL, such as dcgm=http://127.0.0.1:9400/metrics, not 'dcgm'"),
    ("Big=h", "must be NAME=URL or NAME:MAPPING=URL, such as dcgm=http://127.0.0.1:9400/metrics, not 'Big=h'"),
    ("dcmg=http://h/", "unknown exporter mapping 'dcmg'; did you mean 'dcgm'?"),
    ("a:amd=ftp://h/", "must have an http or https URL, not 'ftp://h/'"),
    ("amd=http://h:99999/", "must have an http or https URL, not 'http://h:99999/'"),
    ("amd=http://h/ x", "must have an http or https URL, not 'http://h/ x'"),
    ("amd=http://h/,amd=http://i/", "two exporters are called 'amd': write NAME:MAPPING=URL to give one another name"),
])
def test_an_exporter_that_cannot_be_is_refused(given: str, sentence: str) -> None:
    """With what to write instead."""
    assert problems({**NAMED, "exporter": given}, {}) == [f"--exporter: {sentence}"]


def test_what_is_looked_at_on_the_host() -> None:
    """Paths as the host knows them; an empty endpoint is not asked."""
    agent = resolve_agent_settings({**NAMED, "host_path": ["/data"], "kubelet_healthz": "", "container_runtime": ""},
                                   {"NODEGUARD_HOST_PATH": "/a:/b"})
    assert (agent.host_path, agent.kubelet_healthz, agent.container_runtime) == (("/data",), "", "")
    env = {"NODEGUARD_CONTAINER_RUNTIME": "/run/x.sock"}
    assert resolve_agent_settings(NAMED, env).container_runtime == "/run/x.sock"


@pytest.mark.parametrize(("option", "given", "sentence"), [
    ("host_path", ["data"], "must be a path from the root on, such as /var/lib/kubelet, not 'data'"),
    ("container_runtime", "x.sock", "must be a path from the root on, such as /var/lib/kubelet, not 'x.sock'"),
    ("kubelet_healthz", "https://127.0.0.1:10248/healthz",
     "must be an http URL, such as http://127.0.0.1:10248/healthz, not 'https://127.0.0.1:10248/healthz'"),
    ("kubelet_healthz", "localhost", "must have an http or https URL, not 'localhost'"),
])
def test_what_cannot_be_looked_at_is_refused(option: str, given: object, sentence: str) -> None:
    """With what to write instead."""
    assert problems({**NAMED, option: given}, {}) == [f"--{option.replace('_', '-')}: {sentence}"]
