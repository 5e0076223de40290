"""Where the agent's rules come from, and when they change."""

from collections.abc import Mapping

from nodeguard.config.reload import Reloader
from nodeguard.config.rules import load_rules
from nodeguard.config.settings import AgentSettings
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.engine.soak import judging_hashes
from nodeguard.model.errors import ConfigError
from nodeguard.model.rule import RuleSet
from nodeguard.sinks.log import Log


class RuleSource:
    """The rules in force, and a look at the files every poll period. A bad new set changes nothing but ``invalid``."""

    def __init__(self, settings: AgentSettings, log: Log) -> None:
        self._settings, self._log = settings, log
        self._labels: Mapping[str, str] = {}
        self._relabelled = False
        self._reloader = Reloader(self._load, (*settings.rules, *settings.overrides))
        self._polled_at = float("-inf")
        self._rules: RuleSet | None = None
        self.invalid = ""
        """Why the newest files are refused; empty while they are in force."""

    def load(self, node_labels: Mapping[str, str]) -> RuleSet:
        """The first set. ConfigError with every mistake: an agent never starts with rules that nobody wrote."""
        self._labels = node_labels
        found = self._reloader.poll()
        if isinstance(found, ConfigError):
            raise found
        self._rules = self._load() if found is None else found
        return self._rules

    def baseline(self) -> Mapping[str, str]:
        """Judging hashes of the image's own set: what counts as known on a node's first start."""
        return judging_hashes(load_rules([shipped_rules_dir()]))

    def _load(self) -> RuleSet:
        return load_rules(self._settings.rules, overrides=self._settings.overrides, node_labels=self._labels)

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """The Node's labels, which overrides may ask for."""
        if labels != self._labels:
            self._labels = labels
            self._relabelled = True

    def poll(self, now: float) -> RuleSet | None:
        """The set in force if something about it changed: another set, or ``invalid``."""
        if now - self._polled_at < self._settings.rules_poll / 2 and not self._relabelled:
            return None
        self._polled_at = now
        found = self._reloader.poll()
        if found is None and self._relabelled:
            found = self._again()
        self._relabelled = False
        if isinstance(found, ConfigError):
            return self._refuse(found)
        if found is None or (self._rules is not None and found.hash == self._rules.hash and not self.invalid):
            return None
        self.invalid = ""
        self._rules = found
        self._log.info("rules loaded", rules=len(found.rules), rules_hash=found.hash)
        return found

    def _again(self) -> RuleSet | ConfigError:
        try:
            return self._load()
        except ConfigError as error:
            return error

    def _refuse(self, error: ConfigError) -> RuleSet | None:
        self.invalid = str(error)
        self._log.error("rules refused", message="the newest rule files are refused; the last good ones stay in force",
                        problems=[str(problem) for problem in error.problems])
        return self._rules
