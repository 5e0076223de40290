"""How work goes from the deciding thread to others and comes back."""

from collections.abc import Callable

Call = Callable[[], None]

Elsewhere = Callable[[Callable[[], Call]], None]
"""Has a blocking deed done on another thread; what it returns is called on the deciding one."""
