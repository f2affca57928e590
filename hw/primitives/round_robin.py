"""Taking turns: who is next among several that ask."""

from amaranth import Module, Signal
from amaranth.hdl import ValueLike


def next_in_turn(
    m: Module, domain: str, choice: Signal, requests: Signal | list[ValueLike], last: Signal, again: bool = True
) -> None:
    """Assign to `choice`, in `domain`, the number of the first request after number `last`, in a circle.

    Without a request nothing is assigned. With `again` number `last` comes after all others; without, it does not
    count. Fair as long as `last` is the one served last: who keeps asking waits for one turn of each other at most.
    """
    count = len(requests)
    with m.Switch(last):
        for previous in range(count):
            with m.Case(previous):
                for distance in reversed(range(1, count + 1 if again else count)):
                    following = (previous + distance) % count
                    with m.If(requests[following]):
                        m.d[domain] += choice.eq(following)
