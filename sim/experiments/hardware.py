"""The hardware of an experiment: a preset, what differs from it, and what the size of the run adds."""

from dataclasses import fields as dataclass_fields
from dataclasses import replace
from math import ceil
from typing import Any

from hw.config import TOTAL_CHANNELS, Configuration, ConfigurationError, Timing, preset
from sim.collectives.compiler import Needs
from sim.errors import UsageError
from sim.models.seeded_bugs import SEEDED_BUGS
from sim.workloads.machines import Machine

Settings = tuple[tuple[str, bool | int | float | str], ...]
"""Configuration fields (`timing.FIELD` for DRAM timing) and their values, where they differ from the preset."""
WRONG_ORDER = "wrong_ring_order"
EARLY_GATE = "early_gate"
BUGS = (*SEEDED_BUGS, WRONG_ORDER, EARLY_GATE)
"""Faults a run can be given on purpose, to see it fail; the last two are of software: chunks in the order of the other
way round, and gates that open one launch event early."""
NOT_SET = ("timing", "name", "gpus")
"""Fields of a configuration that are no setting: they follow from the run."""

LANE_CHANNELS = 4
"""Of a lane of a node for kernels of full size, if it has so many."""
PACKETS = {"dma_packets": 96, "store_packets": 72, "link_receive_packets": 64}
"""Packet buffers (256 B) of one channel's share of a node, for links of 75 GB/s. The stores of a stage of 80 workgroups
take the whole DRAM for 2.6 us, during which a link sends 24 packets per channel: so much the DMA engine has to have
ready, and the receiver has to take in beside what is under way in a round trip of 1 us (9 packets). What a receiver has
taken in and not acknowledged yet stands in the sender's slots, too."""


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """Configuration fields from `FIELD=VALUE` texts; a timing parameter is `timing.FIELD=VALUE`."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"--set takes FIELD=VALUE, got {text!r}")
        kinds = Timing if name.startswith("timing.") else Configuration
        known = {item.name: item for item in dataclass_fields(kinds)}
        plain = name.removeprefix("timing.")
        if plain not in known or plain in NOT_SET:
            usable = sorted(set(known) - set(NOT_SET))
            prefix = "timing." if kinds is Timing else ""
            raise UsageError(f"unknown configuration field {name!r}; allowed: {prefix}{f', {prefix}'.join(usable)}")
        if name in settings:
            raise UsageError(f"{name} is set twice")
        settings[name] = _number(name, value, known[plain].default)
    return settings


def _number(name: str, text: str, example: object) -> bool | int | float | str:
    if isinstance(example, str):
        return text
    if isinstance(example, bool):
        if text.lower() not in ("true", "false", "on", "off", "1", "0"):
            raise UsageError(f"{name} must be true or false, got {text!r}")
        return text.lower() in ("true", "on", "1")
    try:
        return float(text) if isinstance(example, float) else int(text, 0)
    except ValueError as error:
        kind = "number" if isinstance(example, float) else "whole number"
        raise UsageError(f"{name} must be a {kind}, got {text!r}") from error


def configuration(name: str, settings: dict[str, Any] | None = None, **changes: Any) -> Configuration:
    """Preset `name` with `settings` (as :func:`parse_settings` gives them); :class:`UsageError` when it cannot be."""
    settings = settings or {}
    timing = {key.removeprefix("timing."): value for key, value in settings.items() if key.startswith("timing.")}
    plain = {key: value for key, value in settings.items() if not key.startswith("timing.")}
    try:
        config = preset(name, **{**changes, **plain})
        return replace(config, timing=replace(config.timing, **timing)) if timing else config
    except ConfigurationError as error:
        raise UsageError(str(error)) from error


def full_size(
    preset_name: str, settings: dict[str, Any], channels: int, link_bandwidth: float, tracker_ways: int
) -> Configuration:
    """A node for kernels of full size, in lanes of :data:`LANE_CHANNELS`: more room for fetches of evicted counters,
    their backing store spread over all channels of the GPU, and :data:`PACKETS` in proportion to links and the channels
    of a lane."""
    links = 1 if link_bandwidth <= 75 else 2
    lanes = max(1, channels // LANE_CHANNELS)
    shares = {"dma_packets": links, "store_packets": min(4, channels // lanes * links)}
    shares["link_receive_packets"] = shares["store_packets"]
    return configuration(
        preset_name,
        settings,
        channels=channels,
        lanes=lanes,
        link_bandwidth=link_bandwidth,
        tracker_ways=tracker_ways,
        tracker_mshrs=16,
        spill_queue_depth=16,
        far_backing_store=True,
        **{name: packets * shares[name] for name, packets in PACKETS.items()},
    )


def of_machine(machine: Machine) -> dict[str, Any]:
    """What a slice of `machine` has otherwise than the preset: its channels, a link in bytes a cycle as the machine's,
    and :data:`PACKETS` in proportion to what is under way on it."""
    under_way = machine.link_bytes_per_cycle * machine.link_latency / (75 / TOTAL_CHANNELS * 500)
    share = max(1, ceil(under_way)) * machine.slice_channels
    # What a receiver has room for is a power of two.
    packets = {name: count * share for name, count in PACKETS.items()}
    packets["link_receive_packets"] = 1 << (packets["link_receive_packets"] - 1).bit_length()
    return {
        "channels": machine.slice_channels,
        "link_bandwidth": machine.link_bytes_per_cycle * TOTAL_CHANNELS,
        "link_latency": machine.link_latency,
        **{name: min(512, count) for name, count in packets.items()},
    }


def with_room(config: Configuration, needed: Needs, plain: int, least: int = 0) -> Configuration:
    """`config` with the ranges and trigger-table entries that a collective needs, or more if it has them: powers of
    two, `plain` ranges beside those of the collective, `least` ranges at the least."""
    ranges = max(least, config.ranges, 1 << (needed.ranges + plain - 1).bit_length())
    blocks = max(config.trigger_blocks, 1 << (needed.trigger_entries - 1).bit_length())
    return replace(config, ranges=ranges, trigger_blocks=blocks)
