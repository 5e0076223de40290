"""One GPU as NVML shows it: who it is, what a reading of it brings, and what is remembered between readings."""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeguard.model.device import Device, gpu
from nodeguard.model.sample import Event, Sample
from nodeguard.vendors.nvidia.nvml_errors import BLINDNESS, REFUSALS, CallError, Code, NvmlError, word
from nodeguard.vendors.nvidia.nvml_values import Field, field_value, known

Invoke = Callable[..., Any]
"""Calls a function of pynvml by name; raises :class:`CallError`."""

_FIELD = "field"
_RECOVERY_ACTION = "gpu_recovery_action"
_RESET = 1


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that NVML lists. The UUID is its identity; the index may be another GPU's after the next opening."""

    index: int
    uuid: str
    pci: str | None
    """Normal form of :func:`nodeguard.model.device.pci_address`; None where NVML tells none."""
    name: str

    @property
    def device(self) -> Device:
        """Its name in samples and faults."""
        return gpu(self.uuid)


@dataclass(frozen=True, slots=True)
class Listing:
    """Which GPUs NVML lists now."""

    count: int
    """What NVML counts; more than ``gpus`` where a handle could not be had, or has not come back yet."""
    gpus: tuple[Gpu, ...]
    lost: tuple[Gpu, ...] = ()
    """Known from an earlier listing; the handles that fail now can only be theirs."""
    failed: Mapping[int, str] = field(default_factory=dict)
    """Index → the return code's word, for each handle that could not be had."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reading of one GPU brought."""

    samples: tuple[Sample, ...] = ()
    """One per signal of the tier; None where no known value came or the GPU does not support the question."""
    events: tuple[Event, ...] = ()
    """``gpu_lost`` when the GPU is lost and was not before."""
    lost: bool = False
    """NVML says that the GPU is lost: then there are no samples."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Calls that failed otherwise, by the return code's word."""
    refused: tuple[str, ...] = ()
    """Questions that the driver refused for the first time, for one line of the log."""


class Memory:
    """What is remembered of one GPU while NVML stays open."""

    __slots__ = ("inferred", "lost", "refused", "resets")

    def __init__(self) -> None:
        self.refused: set[tuple[str, tuple[int, ...]]] = set()
        self.lost = False
        self.resets: set[str] = set()
        """Tiers whose last reading met "reset required"."""
        self.inferred = False
        """The recovery action was told as "reset" because of that, not by the driver's own field."""

    def reopened(self) -> "Memory":
        """What outlives a closing: that a reset was asked for, until both tiers were read and did not meet it again.

        A reset is done while NVML is closed, so the word for its end comes after the next opening.
        """
        memory = Memory()
        memory.resets, memory.inferred = set(self.resets), self.inferred
        return memory


class _LostError(Exception):
    """The GPU is lost: nothing else of this reading counts."""


class Asker:
    """Asks one GPU, once per reading; see :class:`nodeguard.vendors.nvidia.nvml_readings.Ask`."""

    def __init__(self, invoke: Invoke, handle: Any, device: Device, memory: Memory) -> None:
        self.device = device
        self._invoke = invoke
        self._handle = handle
        self._memory = memory
        self.reset_required = False
        self.errors: Counter[str] = Counter()
        self.newly_refused: list[str] = []

    def call(self, function: str, *arguments: int) -> Any:
        """See Ask. Numbers that stand for "no value" are None."""
        if self.refused(function, *arguments):
            return None
        try:
            answer = self._invoke(function, self._handle, *arguments)
        except CallError as error:
            self._failed(error.code, (function, arguments), argued=bool(arguments))
            return None
        return known(answer) if isinstance(answer, (int, float)) else answer

    def struct(self, function: str, struct: str) -> Any:
        """See Ask."""
        if self.refused(function):
            return None
        filled = self._invoke(struct)
        try:
            self._invoke(function, self._handle, ctypes.byref(filled))
        except CallError as error:
            self._failed(error.code, (function, ()), argued=False)
            return None
        return filled

    def fields(self, wanted: list[Field]) -> dict[Field, float]:
        """See Ask."""
        asked = [one for one in wanted if not self.field_refused(*one)]
        if not asked:
            return {}
        try:
            answers = self._invoke("nvmlDeviceGetFieldValues", self._handle, asked)
        except CallError as error:
            for one in asked if error.code in REFUSALS else asked[:1]:
                self._failed(error.code, (_FIELD, one), argued=False)
            return {}
        found: dict[Field, float] = {}
        for one, answer in zip(asked, answers, strict=True):
            if answer.nvmlReturn:
                self._failed(answer.nvmlReturn, (_FIELD, one), argued=True)
                continue
            value = field_value(answer.valueType, answer.value)
            if value is not None:
                found[one] = value
        return found

    def refused(self, function: str, *arguments: int) -> bool:
        """See Ask."""
        return (function, arguments) in self._memory.refused

    def field_refused(self, number: int, scope: int = 0) -> bool:
        """See Ask."""
        return (_FIELD, (number, scope)) in self._memory.refused

    def _failed(self, code: int, question: tuple[str, tuple[int, ...]], *, argued: bool) -> None:
        """``argued``: the question has an argument of its own, so that "invalid argument" means an older driver."""
        if code == Code.GPU_IS_LOST:
            raise _LostError
        if code in BLINDNESS:
            raise NvmlError(code, str(self.device))
        if code == Code.RESET_REQUIRED:
            self.reset_required = True
        elif code in REFUSALS or (argued and code == Code.INVALID_ARGUMENT):
            self._memory.refused.add(question)
            self.newly_refused.append(" ".join((question[0], *map(str, question[1]))))
        else:
            self.errors[word(code)] += 1


def read(asker: Asker, memory: Memory, tier: str, readers: Callable[[Asker], Iterator[Sample]]) -> Reading:
    """One reading of one tier. Raises :class:`NvmlError` where NVML as a whole does not answer."""
    try:
        samples = list(readers(asker))
    except _LostError:
        first, memory.lost = not memory.lost, True
        events = (Event("gpu_lost", asker.device, {"cause": "nvml"}),) if first else ()
        return Reading(events=events, lost=True)
    memory.lost = False
    (memory.resets.add if asker.reset_required else memory.resets.discard)(tier)
    return Reading(
        samples=tuple(_with_reset(samples, memory)), errors=dict(asker.errors),
        refused=tuple(asker.newly_refused))


def _with_reset(samples: list[Sample], memory: Memory) -> Iterator[Sample]:
    """The samples, the recovery action among them raised to "reset" where a call of any tier said "reset required".

    Only the tier that reads the action tells it, and it stands until no tier meets that answer any more: else one
    tier's 0 would take back what the other knows, and look like the evidence of a reset.
    """
    for one in samples:
        if one.signal != _RECOVERY_ACTION:
            yield one
        elif memory.resets:
            memory.inferred = True
            yield one._replace(value=one.value or _RESET)
        else:
            # without the driver's own word, what was inferred is taken back by what it was inferred from
            yield one._replace(value=0) if memory.inferred and one.value is None else one
            memory.inferred = False
