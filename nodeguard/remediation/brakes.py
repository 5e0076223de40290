"""What holds everything: a storm, and brakes on single rules. Used by the deciding thread only."""

from collections.abc import Callable, Iterable, Mapping

from nodeguard.kube import brake
from nodeguard.kube.api import Api
from nodeguard.kube.patches import rfc3339
from nodeguard.model.errors import ApiError
from nodeguard.model.policy import Policy
from nodeguard.remediation import budget
from nodeguard.remediation.calls import Call, Elsewhere
from nodeguard.remediation.hands import Ledger
from nodeguard.remediation.happenings import Happening, Tell
from nodeguard.remediation.report import Fault
from nodeguard.remediation.storms import Storms

_WRITTEN_AGAIN = 600.0
"""Seconds after which a brake that somebody took off may be written again for the same rule."""


class Brakes:
    """Watches how many nodes fall ill at once, and by which rule."""

    def __init__(self, api: Api, ledger: Ledger, namespace: str, policy: Callable[[], Policy],  # noqa: PLR0913
                 tell: Tell, elsewhere: Elsewhere, now: Callable[[], float]) -> None:
        self._api, self._ledger, self._namespace, self._policy = api, ledger, namespace, policy
        self._tell, self._elsewhere, self._now = tell, elsewhere, now
        self._storms = Storms()
        self._storm_until = float("-inf")
        self._storming = False
        self._standing = brake.Brake()
        self._written: dict[tuple[str, str], float] = {}
        """When the loop wrote each brake last."""
        self._holding: set[tuple[str, str]] = set()
        """Rules whose brake the loop has only just written, so that it may not have been read yet."""

    def begin_term(self) -> None:
        """This replica leads now."""
        self._storms.begin_term()

    def note(self, node: str, faults: Iterable[Fault]) -> None:
        """What acts on this node now."""
        self._storms.note(node, faults, self._now())

    def forget(self, node: str) -> None:
        """The Node is gone."""
        self._storms.forget(node)

    def held(self, fault: Fault) -> bool:
        """Whether the brake keeps the loop from acting on this fault."""
        return (fault.rule, fault.rule_hash) in self._holding or brake.held(
            self._standing, fault.rule, fault.rule_hash)

    def storm(self) -> str:
        """Why nothing is begun now; empty: no storm."""
        until = max(self._storm_until, budget.storm_until(self._ledger.ledger))
        return f"storm: nothing is begun before {rfc3339(until)}" if self._now() < until else ""

    def look(self, sizes: Mapping[str, int]) -> bool:
        """Count; whether a storm or a brake has just ended, so that everything is to be decided anew."""
        now, nodes = self._now(), sum(sizes.values())
        newly = self._storms.storm(self._policy().storm, nodes, now)
        if newly is not None:
            self._storm(newly, now)
        for rule, count in self._storms.bad_rules(self._policy().rule_brake, nodes, now).items():
            if now - self._written.get(rule, float("-inf")) >= _WRITTEN_AGAIN:
                self._brake(rule, count, now)
        over = self._storming and not self.storm()
        if over:
            self._storming = False
            self._tell(Happening(what="storm-over", at=now))
        return over

    def _storm(self, newly: int, now: float) -> None:
        until = now + self._policy().storm.cooldown
        told, self._storm_until = self._storm_until, until
        if not self._storming:
            self._storming = True
            self._tell(Happening(what="storm", at=now, count=newly, text=f"{newly} nodes newly at fault"))
        if until - told > self._policy().storm.cooldown / 10 and not self._policy().dry_run:
            self._elsewhere(lambda: self._keep_storm(until))

    def _keep_storm(self, until: float) -> Call:
        try:
            self._ledger.update_ledger(lambda ledger: budget.storming(ledger, until))
        except ApiError as error:
            text = f"the storm could not be noted on the Lease: {error}"
            return lambda: self._tell(Happening(what="failed", at=self._now(), text=text))
        return _nothing

    def _brake(self, rule: tuple[str, str], count: int, now: float) -> None:
        self._written[rule] = now
        self._holding.add(rule)
        name, content_hash = rule
        reason = f"nodeguard-remediate it tainted {count} nodes within {self._policy().rule_brake.within:g} s"
        hold = brake.Hold(content_hash or brake.ANY, f"{rfc3339(now)} {reason}")
        self._elsewhere(lambda: self._write(name, hold, count, now))

    def _write(self, name: str, hold: brake.Hold, count: int, now: float) -> Call:
        if self._policy().dry_run:
            text = f"brake the rule {name}"
            return lambda: self._tell(Happening(what="would", at=now, text=text))
        try:
            brake.write(self._api, self._namespace, brake.entry(name, hold))
        except ApiError as error:
            text = f"the brake for {name} could not be written: {error}"
            return lambda: self._unwritten(name, text)
        return lambda: self._tell(Happening(what="braked", at=now, text=name, count=count))

    def _unwritten(self, name: str, text: str) -> None:
        self._written = {rule: at for rule, at in self._written.items() if rule[0] != name}
        self._holding = {rule for rule in self._holding if rule[0] != name}
        self._tell(Happening(what="failed", at=self._now(), text=text))

    def read(self) -> None:
        """Read what is braked: a person may have put a brake on, or taken one off."""
        self._elsewhere(self._read)

    def _read(self) -> Call:
        try:
            standing = brake.fetch(self._api, self._namespace)
        except ApiError:
            return _nothing
        return lambda: self._take(standing)

    def _take(self, standing: brake.Brake) -> None:
        self._standing = standing
        now = self._now()
        self._written = {rule: at for rule, at in self._written.items() if now - at < _WRITTEN_AGAIN}
        # one that somebody took off is off, also for the loop itself
        self._holding = {rule for rule in self._holding
                         if rule[0] in standing.rules or now - self._written.get(rule, float("-inf")) < _SETTLED}


_SETTLED = 5.0


def _nothing() -> None:
    """Nothing came of it that the deciding thread must know."""
