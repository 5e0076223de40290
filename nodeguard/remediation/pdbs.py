"""Disruption budgets of a gang: suspending a Job passes them by, so they are asked before."""

from collections.abc import Iterable, Mapping, Sequence

from nodeguard.kube.api import Api, Object
from nodeguard.model.errors import ApiError
from nodeguard.remediation.views import PodView


def objection(api: Api, namespace: str, gang: Sequence[PodView]) -> str:
    """Which budget forbids that all running pods of the gang are disrupted at once; empty: none. ApiError: not told.

    A pod that is not ready is not counted by its budget (policy/v1, ``unhealthyPodEvictionPolicy`` aside).
    """
    running = [pod for pod in gang if pod.running and not pod.deleting and not pod.finished]
    listed = api.get(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets").get("items") or ()
    for budget in listed:
        concerned = sum(1 for pod in running if selects(_selector(budget), pod.labels))
        allowed = int((budget.get("status") or {}).get("disruptionsAllowed") or 0)
        if concerned > allowed:
            name = (budget.get("metadata") or {}).get("name", "")
            return f"the PodDisruptionBudget {namespace}/{name} allows {allowed} disruptions, {concerned} are needed"
    return ""


def try_objection(api: Api, namespace: str, gang: Sequence[PodView]) -> str:
    """The same, with a failure to read the budgets as an objection."""
    try:
        return objection(api, namespace, gang)
    except ApiError as error:
        return f"the disruption budgets of {namespace} cannot be read: {error}"


def _selector(budget: Object) -> Object | None:
    selector = (budget.get("spec") or {}).get("selector")
    return selector if isinstance(selector, dict) else None


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector (meta/v1 LabelSelector) selects these labels; an empty one selects everything."""
    if selector is None:
        return False
    equal = selector.get("matchLabels") or {}
    return all(labels.get(name) == value for name, value in equal.items()) and all(
        _meets(one, labels) for one in _expressions(selector))


def _expressions(selector: Object) -> Iterable[Object]:
    return selector.get("matchExpressions") or ()


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.get("key", ""))
    values = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
