"""Restarts of gangs under way: begun, joined, resumed once, and found again after a crash."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from nodeguard.kube.api import MERGE_PATCH, Api, Object
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound, ApiUnavailable
from nodeguard.remediation import marks, restart
from nodeguard.remediation.owners import KINDS, RESTARTED, How, Owner, Owners
from nodeguard.remediation.restart import Restart

_TRIES = 4

Answer = Literal["suspended", "joined", "left-alone", "gone", "over", "deleted"]

Leading = Callable[[], bool]
"""Whether this replica may act now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """A restart that is under way."""

    owner: Owner
    restart: Restart
    replaces: bool
    """New pods are made while old ones are still ending."""
    failed_ranks: int = 0
    doubts: tuple[str, ...] = ()
    suspended: bool = True
    """False: somebody else resumed it, and only the marks are left to be removed."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What became of a beginning.

    ``left-alone``: a person suspended the owner, who is never resumed by the loop. ``over``: the restart that was to be
    joined has ended. ``deleted``: the Job is made anew instead, see :mod:`.recreate`.
    """

    answer: Answer
    going: Going | None = None


def begin(api: Api, owners: Owners, owner: Owner, wanted: Restart, leading: Leading, *,  # noqa: PLR0913
          join_only: bool = False) -> Begun:
    """Suspend the owner, or join the restart that it is in. ApiError: not told; it may or may not be suspended.

    ``join_only``: a restart is believed to be under way, so nobody has asked whether another one may begin.
    """
    for _ in range(_TRIES):
        try:
            return _begin(api, owners, owner, wanted, leading, join_only=join_only)
        except ApiConflict:
            continue
        except ApiNotFound:
            return Begun("gone")
    raise ApiConflict(f"{owner.title} changes faster than it can be suspended")


def _begin(api: Api, owners: Owners, owner: Owner, wanted: Restart, leading: Leading, *,  # noqa: PLR0913
           join_only: bool) -> Begun:
    found = owners.read(owner)
    still_leading(leading)
    standing = restart.restart_of(found)
    if standing is not None and not restart.is_suspended(found, owner.how):
        # somebody resumed it in the middle: that restart is over, and its marks stand in the way of the next one
        api.patch(owner.path, restart.unmark(found), MERGE_PATCH)
        return Begun("over")
    if standing is not None:
        joined = standing.joined(wanted.nodes[0])
        if joined != standing:
            api.patch(owner.path, restart.note(found, joined), MERGE_PATCH)
        return Begun("joined", going_of(owner, found, joined))
    if join_only:
        return Begun("over")
    if restart.is_suspended(found, owner.how):
        return Begun("left-alone")
    api.patch(owner.path, restart.suspend(found, owner.how, wanted), MERGE_PATCH)
    return Begun("suspended", going_of(owner, found, wanted))


def still_leading(leading: Leading) -> None:
    """Ask between the read and the write that its resourceVersion guards: a process may sleep between any two lines.

    ApiUnavailable: another replica leads, and may have begun and ended the same restart meanwhile.
    """
    if not leading():
        raise ApiUnavailable("another replica leads")


def end(api: Api, owners: Owners, going: Going, leading: Leading = lambda: True) -> bool:
    """Resume the owner and remove the marks, in one PATCH; whether this call did it.

    One whose label says another restart, or none, was not suspended by this one, and is left as it is.
    """
    for _ in range(_TRIES):
        try:
            found = owners.read(going.owner)
            still_leading(leading)
            standing = restart.restart_of(found)
            if standing is None or standing.id != going.restart.id:
                return False
            resumed = restart.is_suspended(found, going.owner.how)
            patch = restart.resume(found, going.owner.how) if resumed else restart.unmark(found)
            api.patch(going.owner.path, patch, MERGE_PATCH)
        except ApiConflict:
            continue
        except ApiNotFound:
            return False
        return resumed
    raise ApiConflict(f"{going.owner.title} changes faster than it can be resumed")


def going_of(owner: Owner, found: Object, standing: Restart) -> Going:
    """The restart, with what the owner says of itself."""
    return Going(owner=owner, restart=standing, replaces=restart.replaces_ending_pods(found, owner.how),
                 failed_ranks=restart.failed_ranks(found, owner.how), doubts=restart.doubts(found, owner.how))


def under_way(api: Api, note: Callable[[str], None]) -> Iterator[Going]:
    """Every restart that stands on an owner, found by its label: what a loop that begins must finish.

    A kind that the cluster does not serve, or that the loop may not list, is passed over.
    """
    for (group, kind), how in _listed().items():
        try:
            yield from _of_kind(api, group, kind, how)
        except ApiNotFound:
            continue
        except ApiError as error:
            note(f"restarts of {kind} cannot be looked for: {error}")


def _listed() -> Mapping[tuple[str, str], How]:
    found = {key: how for key, (_, how) in KINDS.items() if how in RESTARTED}
    return {**found, ("kueue.x-k8s.io", "Workload"): "workload"}


def _of_kind(api: Api, group: str, kind: str, how: How) -> Iterator[Going]:
    served = api.get(f"/apis/{group}").get("preferredVersion") or {}
    api_version = str(served.get("groupVersion", ""))
    plural = KINDS.get((group, kind), (kind.lower() + "s", how))[0]
    listed = api.get(f"/apis/{api_version}/{plural}", {"labelSelector": marks.RESTART_LABEL})
    for item in listed.get("items") or ():
        metadata = item["metadata"]
        above = (metadata.get("ownerReferences") or [{}])[0].get("uid", "") if how == "workload" else ""
        owner = Owner(
            uid=metadata["uid"], stands_for=above, namespace=metadata["namespace"], name=metadata["name"], kind=kind,
            api_version=api_version, how=how,
            path=f"/apis/{api_version}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}")
        standing = restart.restart_of(item)
        if standing is not None:
            yield dataclasses.replace(going_of(owner, item, standing), suspended=restart.is_suspended(item, how))
