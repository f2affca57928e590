"""The saved view (GTKWave's .gtkw) of a ring's waves: the signals along the path of a sector, in its order.

Names are those of the model built for waves (:func:`sim.simulator.fast_model.build_system`); a viewer leaves out what
it does not find, so a view is never in the way.
"""

from collections.abc import Iterator
from pathlib import Path

from amaranth.hdl import Shape
from amaranth.lib.data import StructLayout

from hw.config import ROW_BITS, Configuration
from hw.link.wire import FlitKind, flit_layout
from hw.messages import ColumnCommand, Messages, RowCommand

_GPU = "gpu{rank}.gpu_shell.gpu."
_FIELDS = ("va", "wg", "wf")
"""Fields of a payload that name the sector and its tile."""
_HEXADECIMAL, _COMMENT, _TRANSLATED = "@22", "@200", "@2022"
_NAMED_MARKERS, _ZOOM = 26, -20.0
_PICOSECONDS = 1000
"""Units of time in a cycle; the clock rises in the middle of one."""
_ENUMS = {"row.command": RowCommand, "column.command": ColumnCommand, "flit.kind": FlitKind}
"""End of a signal's name -> what its values are called."""


def _vector(name: str, width: int) -> str:
    return f"{name}[{width - 1}:0]" if width > 1 else name


def _stream(name: str, layout: StructLayout, fields: tuple[str, ...] = _FIELDS) -> Iterator[str]:
    yield f"{name}__valid"
    yield f"{name}__ready"
    for field in fields:
        yield _vector(f"{name}__payload.{field}", layout[field].width)


def _sections(config: Configuration) -> Iterator[tuple[str, list[str]]]:
    """(title, signals of one GPU), step by step."""
    messages = Messages(config)
    for channel in range(config.channels):
        controller = f"node.lane_{channel // config.lane_channels}.controller_{channel % config.lane_channels}"
        arbiter = f"{controller}.admission.arbiter"
        dram = f"dram__{channel}"
        yield (
            f"compute requests, channel {channel}",
            list(_stream(f"compute__{channel}", messages.compute_request)),
        )
        yield (
            f"arbiter, channel {channel}",
            [
                f"{arbiter}.{name}"
                for name in ("compute_waiting", "take_compute", "communication_waiting", "take_communication")
            ]
            + [_vector(f"{arbiter}.occupancy", 7)],
        )
        yield (
            f"DRAM commands, channel {channel}",
            [
                f"{dram}__row.valid",
                *(
                    _vector(f"{dram}__row.{name}", width)
                    for name, width in (("command", 2), ("bank", 4), ("row", ROW_BITS))
                ),
                f"{dram}__column.valid",
                *(_vector(f"{dram}__column.{name}", width) for name, width in (("command", 2), ("bank", 4))),
            ],
        )
        yield f"commits, channel {channel}", list(_stream(f"{controller}.commits", messages.commit))
    for bank in range(config.tracker_banks):
        tracker = f"node.tracker.bank_{bank}"
        counted = [f"{tracker}.{name}" for name in ("hit", "eviction", "fetch")]
        yield f"Tracker bank {bank}", [*_stream(f"{tracker}.messages", messages.commit), *counted]
    slots = ("close", "room", "packet.va", "packet.length")
    for lane in range(config.lanes):
        place, dma = f" of lane {lane}" if config.lanes > 1 else "", f"node.lane_{lane}.dma"
        yield f"ready blocks{place}", list(_stream(f"{dma}.blocks", messages.ready_block))
        yield f"packets of the DMA engine{place}", [f"{dma}.slots__{name}" for name in slots]
    for link in range(config.link_lanes):
        layout = flit_layout(config)
        names = ("kind", "last", "place", "sequence_number", "session", "data")
        flit = [_vector(f"link_out__{link}.flit.{name}", Shape.cast(layout[name].shape).width) for name in names]
        yield f"link {link}", [f"link_out__{link}.valid", *flit]


def _shown(signal: str, prefix: str, folder: Path) -> list[str]:
    """Lines for `signal`; one whose values have names is translated by a file in `folder`."""
    plain = signal.partition("[")[0]
    kind = next((name for name in _ENUMS if plain.endswith(name)), None)
    if kind is None:
        return [prefix + signal]
    return [_TRANSLATED, f"^1 {folder.resolve() / kind}.txt", prefix + signal, _HEXADECIMAL]


def write_view(waves: Path, config: Configuration, gpus: int, begins: int | None = None) -> Path:
    """Write the view of `waves` beside it, as `<name>.gtkw`, and what its enumerations' values are called in a folder
    `<name>.enums`; returns the file. A marker stands where the measured run `begins`, in cycles."""
    folder = waves.with_suffix(".enums")
    folder.mkdir(exist_ok=True)
    for name, members in _ENUMS.items():
        (folder / f"{name}.txt").write_text("".join(f"{item.value:x} {item.name}\n" for item in members))
    lines = [f'[dumpfile] "{waves.resolve()}"', "[timestart] 0"]
    if begins is not None:
        at = begins * _PICOSECONDS + _PICOSECONDS // 2
        # The primary marker and the one called A.
        lines.append(" ".join([f"*{_ZOOM:f}", str(at), str(at), *["-1"] * (_NAMED_MARKERS - 1)]))
    lines += [_HEXADECIMAL, "gpu0.clk"]
    for rank in range(gpus):
        prefix = _GPU.format(rank=rank)
        for title, signals in _sections(config):
            lines += [_COMMENT, f"-GPU {rank}: {title}", _HEXADECIMAL]
            lines += [line for signal in signals for line in _shown(signal, prefix, folder)]
    view = waves.with_suffix(".gtkw")
    view.write_text("\n".join(lines) + "\n")
    return view
