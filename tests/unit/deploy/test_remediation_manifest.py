"""What the loop's manifest says agrees with the code that it starts and with what that code asks for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeguard import __version__
from nodeguard.app.remediator import LEASE_NAME
from nodeguard.config.policy import load_policy, load_policy_text
from nodeguard.config.remediate import REMEDIATE_OPTIONS, resolve_remediate_settings
from nodeguard.config.shipped import shipped_policy
from nodeguard.kube.brake import CONFIG_MAP
from nodeguard.model.policy import Policy
from nodeguard.remediation import incidents_ring, recreate
from nodeguard.remediation.owners import KINDS, RESTARTED

TEXT = (Path(__file__).parents[3] / "deploy" / "remediation.yaml").read_text()
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(TEXT))


def one(kind: str) -> dict[str, Any]:
    """The only object of this kind."""
    (found,) = [each for each in OBJECTS if each["kind"] == kind]
    return found


def rights(role: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    """Group and resource → verbs, of the rules that name no object."""
    found: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"] if "resourceNames" not in rule else ():
            found.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return found


@pytest.fixture
def pod() -> dict[str, Any]:
    """The Deployment's pod."""
    spec: dict[str, Any] = one("Deployment")["spec"]["template"]["spec"]
    return spec


def test_every_kind_of_owner_has_its_right() -> None:
    """A kind that is suspended is read, listed and patched; another one is only read."""
    found = rights(one("ClusterRole"))
    for (group, _), (plural, how) in KINDS.items():
        wanted = {"get", "list", "patch"} if how in RESTARTED else {"get"}
        assert found.pop((group, plural)) == wanted, plural
    assert found == {
        ("", "nodes"): {"get", "list", "watch", "patch"}, ("", "pods"): {"list", "watch"},
        ("", "pods/eviction"): {"create"}, ("policy", "poddisruptionbudgets"): {"list"},
        ("resource.k8s.io", "resourceclaims"): {"list", "watch"}, ("", "events"): {"create"},
        ("kueue.x-k8s.io", "workloads"): {"get", "list", "patch"}, ("bus.volcano.sh", "commands"): {"create"}}


def test_own_objects_are_named() -> None:
    """One Lease, three ConfigMaps, each by its name; the policy is not the loop's to write."""
    role = one("Role")
    named = {(rule["resources"][0], tuple(rule["resourceNames"])): rule["verbs"]
             for rule in role["rules"] if "resourceNames" in rule}
    assert named == {("leases", (LEASE_NAME,)): ["get", "patch"],
                     ("configmaps", (CONFIG_MAP, incidents_ring.CONFIG_MAP, recreate.CONFIG_MAP)): ["get", "patch"]}
    assert rights(role) == {("coordination.k8s.io", "leases"): {"create"}, ("", "configmaps"): {"create"}}


def test_every_right_has_a_reason() -> None:
    """A comment in the rule, or above the run of rules that it is for."""
    reasoned, block = False, ""
    for line in TEXT.splitlines():
        if line.startswith("- apiGroups"):
            block = line
        elif line.startswith("#"):
            reasoned = "get: " in line or "list: " in line or reasoned
        elif line.strip().startswith("#"):
            block += line
        elif line.startswith("  verbs:"):
            assert "#" in block or reasoned
        elif line == "---":
            reasoned = False


def test_settings_in_the_environment_are_known(pod: dict[str, Any]) -> None:
    """Each NODEGUARD_ variable is an option, and together they start a loop."""
    (container,) = pod["containers"]
    env = {each["name"]: each.get("value", "nodeguard") for each in container["env"]}
    assert {name for name in env if name.startswith("NODEGUARD_")} <= {option.variable for option in REMEDIATE_OPTIONS}
    settings = resolve_remediate_settings({}, env)
    (port,), (mount,), (volume,) = container["ports"], container["volumeMounts"], pod["volumes"]
    assert settings.listen.port == port["containerPort"] == 9821
    assert str(settings.policy) == mount["mountPath"]
    assert mount["name"] == volume["name"]
    assert volume["configMap"]["name"] == one("ConfigMap")["metadata"]["name"]


def test_pod_has_no_privilege(pod: dict[str, Any]) -> None:
    """Non-root, read-only, without capabilities."""
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["image"].endswith(f"/nodeguard:{__version__}")


def test_example_of_a_policy_says_the_defaults(tmp_path: Path) -> None:
    """What the comment shows is the policy in force while the ConfigMap is empty, as it comes."""
    lines = TEXT.splitlines()
    begin = lines.index("#     policy.yaml: |")
    end = next(number for number in range(begin, len(lines)) if not lines[number].startswith("#"))
    example = load_policy_text("\n".join(line[8:] for line in lines[begin + 1:end]), "example")
    assert example == load_policy(shipped_policy()) == load_policy(tmp_path)
    assert replace(example, hash="") == Policy()
    assert "data" not in one("ConfigMap")
