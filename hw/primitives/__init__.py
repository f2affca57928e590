"""Parts that several blocks use and that know nothing of T3."""

from .stream_arbiter import StreamArbiter

__all__ = ["StreamArbiter"]
