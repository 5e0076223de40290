"""What the shipped manifest says agrees with the code that it starts and confines."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeguard import __version__
from nodeguard.config.options import AGENT_OPTIONS
from nodeguard.config.rules import load_rules
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.kube.brake import CONFIG_MAP
from nodeguard.model.intent import CONDITION_PATTERN, FAULTS_ANNOTATION, TAINT_EFFECT, TAINT_KEY
from nodeguard.sinks.events import COLLECTION

DEPLOY = Path(__file__).parents[3] / "deploy"
TEXT = (DEPLOY / "daemonset.yaml").read_text()
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(TEXT))


def one(kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
    """The object of the manifest."""
    (found,) = [each for each in OBJECTS if each["kind"] == kind and each["metadata"]["name"] == name
                and namespace in (None, each["metadata"].get("namespace"))]
    return found


@pytest.fixture
def pod() -> dict[str, Any]:
    """The DaemonSet's pod."""
    spec: dict[str, Any] = one("DaemonSet", "nodeguard-agent")["spec"]["template"]["spec"]
    return spec


def test_policy_and_agent_mean_the_same_words() -> None:
    """Condition types, taint and annotation are the same text in both."""
    policy = one("ValidatingAdmissionPolicy", "nodeguard-agent-nodes")["spec"]
    variables = {each["name"]: each["expression"] for each in policy["variables"]}
    assert variables["ownTypes"] == f"'{CONDITION_PATTERN}'"
    for taints in (variables["othersTaintsBefore"], variables["othersTaintsAfter"]):
        assert f"t.key == '{TAINT_KEY}'" in taints
        assert f"t.effect == '{TAINT_EFFECT}'" in taints
    assert f"k != '{FAULTS_ANNOTATION}'" in variables["annotationsChanged"]


def test_every_policy_is_bound_fails_closed_and_judges_the_agent_alone() -> None:
    """A policy without a binding does nothing; one without a condition would judge everybody."""
    account = "system:serviceaccount:nodeguard:nodeguard-agent"
    names = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "ValidatingAdmissionPolicy"}
    for name in names:
        policy = one("ValidatingAdmissionPolicy", name)["spec"]
        (condition,) = policy["matchConditions"]
        assert policy["failurePolicy"] == "Fail"
        assert condition["expression"] == f"request.userInfo.username == '{account}'"
        binding = one("ValidatingAdmissionPolicyBinding", name)["spec"]
        assert binding == {"policyName": name, "validationActions": ["Deny"]}
    assert len(names) == 3


def test_policies_come_before_the_rights() -> None:
    """Between two objects of one apply, no agent is unconfined."""
    kinds = [each["kind"] for each in OBJECTS]
    last_policy = max(number for number, kind in enumerate(kinds) if kind.startswith("Validating"))
    assert all(number > last_policy for number, kind in enumerate(kinds) if "Role" in kind)


def test_rights_are_those_that_the_agent_uses() -> None:
    """No Secrets, no pods, no eviction, no deletion; one ConfigMap by its name."""
    roles = [each for each in OBJECTS if each["kind"] in ("Role", "ClusterRole")]
    rights = {(resource, verb) for role in roles for rule in role["rules"] for resource in rule["resources"]
              for verb in rule["verbs"]}
    assert rights == {("nodes", "get"), ("nodes", "list"), ("nodes", "watch"), ("nodes", "patch"),
                      ("nodes/status", "patch"), ("leases", "create"), ("leases", "patch"), ("configmaps", "get"),
                      ("events", "create")}
    own = one("Role", "nodeguard-agent", "nodeguard")["rules"]
    (brake,) = [rule for rule in own if rule["resources"] == ["configmaps"]]
    assert brake["resourceNames"] == [CONFIG_MAP]
    assert one("Role", "nodeguard-agent", COLLECTION.split("/")[4])["rules"][0]["resources"] == ["events"]


def test_settings_in_the_environment_are_known(pod: dict[str, Any]) -> None:
    """Each NODEGUARD_ variable is an option, and together they start an agent."""
    (container,) = pod["containers"]
    env = {each["name"]: each.get("value", "gpu-7" if "NODE_NAME" in each["name"] else "nodeguard")
           for each in container["env"]}
    assert {name for name in env if name.startswith("NODEGUARD_")} <= {option.variable for option in AGENT_OPTIONS}
    settings = resolve_agent_settings({}, env)
    (port,) = container["ports"]
    assert settings.listen.port == port["containerPort"] == 9820
    assert settings.node_name == "gpu-7"
    assert settings.namespace == one("Namespace", "nodeguard")["metadata"]["name"]
    mounts = {Path(each["mountPath"]) for each in container["volumeMounts"]}
    assert {settings.state_dir, *settings.overrides, settings.nvml_library, settings.kmsg.parent} == mounts


def test_every_mount_has_its_volume(pod: dict[str, Any]) -> None:
    """And no volume is mounted for nothing."""
    (container,) = pod["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_image_is_of_this_version(pod: dict[str, Any]) -> None:
    """A manifest and an image that belong together."""
    assert pod["containers"][0]["image"].endswith(f"/nodeguard:{__version__}")


def test_example_of_overrides_is_valid(tmp_path: Path) -> None:
    """What the comment shows loads with the shipped rules."""
    lines = iter(TEXT.splitlines())
    for line in lines:
        if line.startswith("#     ours.yaml: |"):
            break
    example = [line.removeprefix("#").strip("\n")[7:] for line in lines if line.startswith("#       ")]
    assert len(example) == 5
    (tmp_path / "ours.yaml").write_text("\n".join(example))
    shipped = load_rules([shipped_rules_dir()])
    assert load_rules([shipped_rules_dir()], overrides=[tmp_path]).hash != shipped.hash


def test_privileges_have_reasons() -> None:
    """The line above each privilege says why."""
    lines = TEXT.splitlines()
    for privilege in ("pod-security.kubernetes.io/enforce: privileged", "hostPID: true", "privileged: true",
                      "runAsUser: 0", "hostPath: {path: /dev,", "hostPath: {path: /,", "hostPath: {path: /var/lib/"):
        (number,) = [each for each, line in enumerate(lines) if line.strip().startswith(privilege)]
        above = [line.strip() for line in lines[max(number - 3, 0):number]]
        assert any(line.startswith("#") for line in above), privilege
