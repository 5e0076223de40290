"""Where the loop's policy comes from, and when it changes."""

from dataclasses import replace

from nodeguard.config.policy import load_policy
from nodeguard.config.reload import Reloader
from nodeguard.config.remediate import RemediateSettings
from nodeguard.model.errors import ConfigError
from nodeguard.model.policy import Policy
from nodeguard.sinks.log import Log


class PolicySource:
    """The policy in force, and a look at its file whenever asked. A bad new one changes nothing but ``invalid``."""

    def __init__(self, settings: RemediateSettings, log: Log) -> None:
        """ConfigError with every mistake: a loop never starts with a policy that nobody wrote."""
        self._settings, self._log = settings, log
        self._reloader = Reloader(self._load, (settings.policy,))
        found = self._reloader.poll()
        if isinstance(found, ConfigError):
            raise found
        self._policy = self._load() if found is None else found
        self.invalid = ""
        """Why the newest file is refused; empty while it is in force."""

    def current(self) -> Policy:
        """The policy in force. From any thread."""
        return self._policy

    def poll(self) -> bool:
        """Look at the file; whether another policy is in force now."""
        found = self._reloader.poll()
        if isinstance(found, ConfigError):
            self._refuse(found)
            return False
        if found is None:
            return False
        self.invalid = ""
        changed = found != self._policy
        self._policy = found
        self._log.info("policy loaded", policy_hash=found.hash, dry_run=found.dry_run)
        return changed

    def _load(self) -> Policy:
        policy = load_policy(self._settings.policy)
        return replace(policy, dry_run=True) if self._settings.dry_run else policy

    def _refuse(self, error: ConfigError) -> None:
        self.invalid = str(error)
        self._log.error("policy refused", message="the newest policy is refused; the last good one stays in force",
                        problems=[str(problem) for problem in error.problems])
