"""A wire that loses, damages, doubles and reorders what it carries: one direction of one link, in Python."""

import heapq
import random
from collections import Counter
from dataclasses import dataclass


@dataclass
class Weather:
    """Chances (0 to 1) of what happens to a word, and `late`: up to how many cycles more it may take."""

    drop: float = 0
    damage: float = 0
    double: float = 0
    delay: float = 0
    late: int = 0
    cut: bool = False
    """Nothing arrives."""


class LossyWire:
    """Words of `bits` bits; at most one comes out a cycle, `latency` cycles after it went in or later."""

    def __init__(self, bits: int, latency: int, weather: Weather):
        self.bits, self.latency, self.weather = bits, latency, weather
        self.under_way: list[tuple[int, int, int]] = []
        self.number = 0
        self.turned = 0
        """Bits that will be wrong in the next word, and in none after it."""
        self.happened: Counter[str] = Counter()

    def put(self, now: int, word: int) -> None:
        """A word goes in."""
        weather = self.weather
        copies = 1
        if weather.cut or random.random() < weather.drop:
            self.happened["dropped"] += 1
            return
        if random.random() < weather.double:
            self.happened["doubled"] += 1
            copies = 2
        for copy in range(copies):
            out, self.turned = word ^ self.turned, 0
            if random.random() < weather.damage:
                self.happened["damaged"] += 1
                out ^= self._wrong_bits()
            late = random.randint(1, weather.late) if weather.late and random.random() < weather.delay else 0
            self.happened["delayed"] += late > 0
            due = now + self.latency + late + copy
            heapq.heappush(self.under_way, (due, self.number if not late else self.number + 1000, out))
            self.number += 1

    def _wrong_bits(self) -> int:
        """One to five bits anywhere, or in the low or high fields, or a burst of up to 24: what the check must find."""
        kind = random.randrange(4)
        if kind == 0:
            length = random.randint(2, 24)
            burst = random.getrandbits(length) | 1 | 1 << (length - 1)
            return burst << random.randrange(self.bits - length + 1)
        low, high = [(0, self.bits), (0, 28), (self.bits - 24, self.bits)][kind - 1]
        places = random.sample(range(low, high), random.randint(1, 5))
        return sum(1 << place for place in places)

    def take(self, now: int) -> int | None:
        """The word that comes out in this cycle."""
        if self.weather.cut:
            self.happened["dropped"] += len(self.under_way)
            self.under_way.clear()
        if self.under_way and self.under_way[0][0] <= now:
            return heapq.heappop(self.under_way)[2]
        return None
