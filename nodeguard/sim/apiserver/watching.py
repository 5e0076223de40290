"""Watches: a resource's changes from a version on, as the lines that Kubernetes streams."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodeguard.sim.apiserver.errors import Refusal
from nodeguard.sim.apiserver.resources import Target
from nodeguard.sim.apiserver.selectors import Match, number, selector
from nodeguard.sim.apiserver.store import Change, Object, Store

Event = dict[str, Any]

DEFAULT_SECONDS = 1800.0
"""Length of a watch whose client names none (kube-apiserver --min-request-timeout)."""

TICK = 0.5
"""Seconds between two looks whether the client is still there."""


def watch(
    store: Store, target: Target, query: Mapping[str, str], over: Callable[[], bool], bookmark_every: float,
) -> Iterator[Event | None]:
    """The events of a watch, until its time is up or ``over``; None at every tick without one.

    A version that is no longer in the history gives one ERROR event with a Status of 410 and the end, as a real
    server does after its 200. Raises :class:`Refusal` for a selector or version that cannot be parsed.
    """
    matches = _matcher(target, query)
    until = time.monotonic() + (number(query, "timeoutSeconds") or DEFAULT_SECONDS)
    bookmark_every = bookmark_every if query.get("allowWatchBookmarks") in {"true", "1", "True"} else float("inf")
    version = number(query, "resourceVersion") or 0
    present: list[Object] = []
    if not version:  # without a version, or from 0, a watch begins with what is there
        version, present = store.select(target.resource, target.namespace)
    return _follow(_Stream(store, target, matches, version), present, until, over, bookmark_every)


class _Stream:
    """A position in the history, and what of it the client is to see."""

    def __init__(self, store: Store, target: Target, matches: Match, version: int) -> None:
        self._store = store
        self._target = target
        self._matches = matches
        self.version = version

    def added(self, items: list[Object]) -> Iterator[Event]:
        for item in items:
            if self._matches(item):
                yield {"type": "ADDED", "object": item}

    def news(self, seconds: float) -> list[Event]:
        self._store.wait(self.version, seconds)
        changes = self._store.since(self.version)
        if changes:
            self.version = changes[-1].version
        return [event for change in changes if change.resource == self._target.resource
                for event in self._event(change)]

    def _event(self, change: Change) -> Iterator[Event]:
        was = change.before is not None and self._matches(change.before)
        now = change.after is not None and self._matches(change.after)
        if now:
            yield {"type": "MODIFIED" if was else "ADDED", "object": change.after}
        elif was and change.before is not None:  # removed, or changed so that the selector no longer takes it
            item = change.before if change.after is None else change.after
            version = {"resourceVersion": str(change.version)}
            yield {"type": "DELETED", "object": {**item, "metadata": {**item["metadata"], **version}}}

    def bookmark(self) -> Event:
        resource = self._target.resource
        return {"type": "BOOKMARK", "object": {
            "kind": resource.kind, "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(self.version), "creationTimestamp": None}}}


def _follow(
    stream: _Stream, present: list[Object], until: float, over: Callable[[], bool], bookmark_every: float,
) -> Iterator[Event | None]:
    yield from stream.added(present)
    bookmark_at = time.monotonic() + bookmark_every
    while not over() and (left := until - time.monotonic()) > 0:
        try:
            yield from stream.news(min(TICK, left))
        except Refusal as refusal:
            yield {"type": "ERROR", "object": refusal.body()}
            return
        yield None
        if time.monotonic() >= bookmark_at:
            yield stream.bookmark()
            bookmark_at = time.monotonic() + bookmark_every
    if bookmark_every != float("inf"):
        yield stream.bookmark()


def _matcher(target: Target, query: Mapping[str, str]) -> Match:
    matches = selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    if not target.namespace:
        return matches
    return lambda item: item["metadata"].get("namespace") == target.namespace and matches(item)
