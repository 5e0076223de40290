"""How NVML's C functions take their arguments from ctypes."""

import ctypes
from typing import Any

import pynvml


class BadArgumentError(Exception):
    """The caller gave what no C function could take: the call returns "invalid argument"."""


def target(argument: Any) -> Any:
    """The object behind an out argument: ``byref(x)``, or an array, which C takes by address."""
    if isinstance(argument, ctypes.Array):
        return argument
    found = getattr(argument, "_obj", None)
    if found is None:  # a struct by value: the C function would write to a wild address
        raise BadArgumentError
    return found


def number(argument: Any) -> int:
    """An integer argument, plain or boxed."""
    return int(getattr(argument, "value", argument))


def put(argument: Any, value: float | None) -> int:
    """Write a number; None is "not supported"."""
    if value is None:
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
    target(argument).value = value
    return int(pynvml.NVML_SUCCESS)


def put_text(argument: Any, length: Any, text: str | bytes) -> int:
    """Write a zero-terminated string into a buffer."""
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) >= number(length):
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    target(argument).value = raw
    return int(pynvml.NVML_SUCCESS)


def put_pointer(argument: Any, address: int) -> int:
    """Write a handle."""
    ctypes.cast(argument, ctypes.POINTER(ctypes.c_void_p))[0] = address
    return int(pynvml.NVML_SUCCESS)


def address(handle: Any) -> int | None:
    """Where a handle points to."""
    try:
        return ctypes.cast(handle, ctypes.c_void_p).value
    except ctypes.ArgumentError as error:
        raise BadArgumentError from error


def set_struct(argument: Any, *versions: int, **values: Any) -> int:
    """Fill a struct. With ``versions`` its version must be one of them, as nvml.h asks of versioned structs."""
    struct = target(argument)
    if versions and struct.version not in versions:
        return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    names = {name for name, *_ in struct._fields_}
    for name, value in values.items():
        if name in names:
            setattr(struct, name, value)
    return int(pynvml.NVML_SUCCESS)
