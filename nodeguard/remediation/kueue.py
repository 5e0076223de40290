"""What Kueue manages: its Workload stands for the owner, and is made inactive and active again."""

from nodeguard.kube.api import Api
from nodeguard.model.errors import ApiNotFound
from nodeguard.remediation.owners import Owner


def workload_of(api: Api, owner: Owner) -> Owner | None:
    """The Workload of a top owner, as something that can be suspended; None: it has none. ApiError: not told."""
    try:
        version = (api.get("/apis/kueue.x-k8s.io").get("preferredVersion") or {}).get("groupVersion", "")
        root = f"/apis/{version}/namespaces/{owner.namespace}/workloads"
        listed = api.get(root).get("items") or ()
    except ApiNotFound:
        return None
    for item in listed:
        metadata = item["metadata"]
        if any(ref.get("uid") == owner.uid for ref in metadata.get("ownerReferences") or ()):
            return Owner(uid=metadata["uid"], path=f"{root}/{metadata['name']}", namespace=owner.namespace,
                         name=metadata["name"], kind="Workload", api_version=version, how="workload",
                         stands_for=owner.uid)
    return None
