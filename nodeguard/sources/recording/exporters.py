"""The ``exporter`` entries of a recording."""

from collections.abc import Callable, Iterable
from typing import Any

from nodeguard.model.sample import Batch
from nodeguard.sources.polled import Sight
from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report
from nodeguard.sources.recording.readers import Pages


class Exporters:
    """Reads pages as the live source does; remembers what each exporter told before."""

    def __init__(self, new: Callable[[str], Pages | None]) -> None:
        self._new = new
        self._known: dict[str, tuple[Pages, Sight]] = {}

    def entry(self, at: float, value: Any, report: Report) -> Iterable[Batch]:
        """One scrape."""
        value = checks.mapping(value, "exporter", report)
        checks.unknown_keys(value, ("name", "page", "error"), "exporter", report)
        if "name" not in value or ("page" in value) == ("error" in value):
            report("exporter needs a name and either a page or an error")
            return ()
        found = self._of(checks.text(value["name"], "exporter name", report))
        if found is None:
            report(f"no exporter is known by the name {value['name']!r}")
            return ()
        pages, sight = found
        if "error" in value:
            return (sight.of(pages.failed(checks.text(value["error"], "exporter error", report), at)),)
        return (sight.of(pages.page(checks.text(value["page"], "exporter page", report), at)),)

    def _of(self, name: str) -> tuple[Pages, Sight] | None:
        if name not in self._known:
            pages = self._new(name)
            if pages is None:
                return None
            self._known[name] = pages, Sight()
        return self._known[name]
