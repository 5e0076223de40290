"""Jobs whose ranks have failed by themselves: stored, deleted and made anew, because resuming keeps their back-off.

The Job is written into a ConfigMap in nodeguard's namespace before it is deleted, so whoever leads next can make it.
From then on it is a restart like others, which ends by making the Job where others end by resuming it.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from nodeguard.kube.api import MERGE_PATCH, Api, Object
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound, ApiRefused, ApiUnavailable
from nodeguard.remediation import marks, restart
from nodeguard.remediation.gangs import Begun, Going, Leading, going_of, still_leading
from nodeguard.remediation.moments import moment
from nodeguard.remediation.owners import Owner, Owners
from nodeguard.remediation.restart import Restart

CONFIG_MAP = "nodeguard-recreate"
"""Its name; the shipped Role lets the loop write this one. One entry a Job, by its UID."""

DELETED = "deleted"
"""The step of such a restart."""

VERSION = 1
_FORGOTTEN = 600.0
"""Seconds, longer than a request to delete can be on its way, after which a stored Job that stands was not deleted."""
_LONGEST = 256 << 10
"""Characters of a Job that is stored; a ConfigMap holds 1 MiB."""

_MADE_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
"""What the Job controller wrote; on a new Job they would be refused (batch/v1 validation)."""
_KEPT = ("name", "namespace", "labels", "annotations")


def begin(api: Api, owners: Owners, owner: Owner, wanted: Restart, namespace: str,  # noqa: PLR0913
          leading: Leading) -> Begun | None:
    """Store and delete the Job; None: it is none to be made anew. ApiError: not told, but nothing is lost."""
    try:
        found = owners.read(owner)
    except ApiNotFound:
        return Begun("gone")
    going = dataclasses.replace(going_of(owner, found, wanted), restart=dataclasses.replace(wanted, step=DELETED))
    if not going.failed_ranks or not _may_be_deleted(found, owner):
        return None
    text = _stored(going, found)
    if len(text) > _LONGEST:
        return None
    still_leading(leading)
    _keep(api, namespace, owner.uid, text)
    preconditions = {"uid": owner.uid, "resourceVersion": found["metadata"]["resourceVersion"]}
    still_leading(leading)
    try:
        api.delete(owner.path, {"propagationPolicy": "Background", "preconditions": preconditions})
    except (ApiConflict, ApiNotFound, ApiRefused) as error:
        # certainly not deleted by this call, so nothing may be made anew when somebody else deletes it
        _keep(api, namespace, owner.uid, None)
        return _not_deleted(error)
    return Begun("deleted", going)


def _not_deleted(error: ApiError) -> Begun | None:
    """Without the right to delete, the Job is restarted as others are."""
    if isinstance(error, ApiConflict):
        raise error
    return Begun("gone") if isinstance(error, ApiNotFound) else None


def _may_be_deleted(found: Object, owner: Owner) -> bool:
    """Not what a person suspended or deletes, what has ended, or what the loop is restarting in the other way."""
    ended = any(one.get("type") in ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
                and one.get("status") == "True" for one in (found.get("status") or {}).get("conditions") or ())
    return not (ended or restart.is_suspended(found, owner.how) or restart.restart_of(found) is not None
                or "deletionTimestamp" in found["metadata"])


def end(api: Api, namespace: str, going: Going, leading: Leading = lambda: True) -> str | None:
    """Make the Job anew; its UID, or None when there is nothing to make. ApiError: not made, or not told."""
    entry = _entries(api, namespace).get(going.owner.uid)
    if entry is None:
        return None
    still_leading(leading)
    standing = _standing(api, going.owner)
    if standing == going.owner.uid:
        raise ApiUnavailable("the old one is still being deleted")
    # one that stands is this one, whose making was not told, or somebody else's: then that is what is wanted
    made = standing or _make(api, going.owner, entry["job"])
    _keep(api, namespace, going.owner.uid, None)
    return made


def _make(api: Api, owner: Owner, job: Object) -> str:
    try:
        made = api.post(owner.path.rpartition("/")[0], job)
    except ApiConflict as error:
        raise ApiUnavailable(str(error)) from error
    return str((made.get("metadata") or {}).get("uid", ""))


def under_way(api: Api, namespace: str, now: float) -> Iterator[Going]:
    """Every Job that is stored and deleted; one that was never deleted is forgotten in time. ApiError: not told."""
    for uid, entry in _entries(api, namespace).items():
        going = _going(uid, entry)
        if going is None:
            continue
        if not _is_untouched(api, going.owner):
            yield going
        elif now > going.restart.at + _FORGOTTEN:
            _keep(api, namespace, uid, None)


def _is_untouched(api: Api, owner: Owner) -> bool:
    try:
        metadata = api.get(owner.path)["metadata"]
    except ApiNotFound:
        return False
    return metadata.get("uid") == owner.uid and "deletionTimestamp" not in metadata


def _standing(api: Api, owner: Owner) -> str:
    """UID of the Job of this name; empty: there is none."""
    try:
        return str(api.get(owner.path)["metadata"]["uid"])
    except ApiNotFound:
        return ""


def _stored(going: Going, job: Object) -> str:
    wanted, owner = going.restart, going.owner
    return json.dumps({
        "v": VERSION, "replaces": going.replaces, "failed": going.failed_ranks, "job": _fresh(job),
        "owner": {"path": owner.path, "namespace": owner.namespace, "name": owner.name,
                  "apiVersion": owner.api_version},
        "restart": {"id": wanted.id, "nodes": list(wanted.nodes), "at": wanted.at, "deadline": wanted.deadline},
    }, separators=(",", ":"))


def _fresh(job: Object) -> Object:
    """The Job as somebody would create it: without what the API server and the Job controller wrote."""
    metadata = {name: job["metadata"][name] for name in _KEPT if name in job["metadata"]}
    metadata["labels"] = _without(metadata.get("labels"), _MADE_LABELS)
    metadata["annotations"] = _without(metadata.get("annotations"), (marks.RESTART,))
    spec = dict(job["spec"])
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
        template = dict(spec.get("template") or {})
        about = dict(template.get("metadata") or {})
        spec["template"] = {**template, "metadata": {**about, "labels": _without(about.get("labels"), _MADE_LABELS)}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _without(words: Mapping[str, str] | None, names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in (words or {}).items() if name not in names}


def _going(uid: str, entry: Object) -> Going | None:
    try:
        owner, wanted = entry["owner"], entry["restart"]
        return Going(
            owner=Owner(uid=uid, path=str(owner["path"]), namespace=str(owner["namespace"]), name=str(owner["name"]),
                        kind="Job", api_version=str(owner["apiVersion"]), how="suspend"),
            restart=Restart(id=str(wanted["id"]), nodes=tuple(map(str, wanted["nodes"])), at=moment(wanted["at"]),
                            deadline=moment(wanted["deadline"]), step=DELETED),
            replaces=entry["replaces"] is True, failed_ranks=int(entry["failed"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def path(namespace: str) -> str:
    """Where the stored Jobs are in the API."""
    return f"{_collection(namespace)}/{CONFIG_MAP}"


def _collection(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _entries(api: Api, namespace: str) -> Mapping[str, Any]:
    try:
        data = api.get(path(namespace)).get("data") or {}
    except (ApiNotFound, ApiRefused):
        # nothing was ever stored where the loop may not read it
        return {}
    return {uid: entry for uid, text in data.items() if (entry := _parsed(text)) is not None}


def _parsed(text: str) -> Object | None:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and entry.get("v") == VERSION else None


def _keep(api: Api, namespace: str, uid: str, text: str | None) -> None:
    """Write an entry, or remove it."""
    change: Object = {"data": {uid: text}}
    try:
        api.patch(path(namespace), change, MERGE_PATCH)
    except ApiNotFound:
        if text is None:
            return
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", **change,
                        "metadata": {"name": CONFIG_MAP, "namespace": namespace}}
        try:
            api.post(_collection(namespace), body)
        except ApiConflict:
            api.patch(path(namespace), change, MERGE_PATCH)


def try_under_way(api: Api, namespace: str, now: float) -> tuple[tuple[Going, ...], str]:
    """The same, and why it could not be told, or nothing."""
    try:
        return tuple(under_way(api, namespace, now)), ""
    except ApiError as error:
        return (), f"Jobs that are made anew cannot be looked for: {error}"
