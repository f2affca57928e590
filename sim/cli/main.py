"""The command `t3rtl`.

Exit codes: 0 the result is right, 1 it is wrong, 2 the input was bad, 3 the machine failed (disk full, out of memory,
compiler missing or failing), 130 interrupted. All but 0 come with a sentence on standard error. What needs the
simulator is imported inside the commands, so that help, lists and refusals come at once.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hw.release import release
from sim.cli.alternatives import alternatives
from sim.cli.blocks import show_list, vectors, verilog
from sim.cli.calibrate import calibrate
from sim.cli.children import adopt_orphans, end_children
from sim.cli.compare import compare
from sim.cli.doctor import doctor
from sim.cli.dram_trace import dram_trace
from sim.cli.explain import explain
from sim.cli.faults import faults
from sim.cli.reduce import reduce
from sim.cli.regress import bench, regress
from sim.cli.report import report
from sim.cli.run import run
from sim.cli.sequences import sequences
from sim.cli.sweep import sweep
from sim.cli.synth import synth
from sim.cli.terminal import print_error, silence_broken_pipe
from sim.errors import MachineError, SimulationError, UsageError, sentence_of
from sim.simulator.checkout import commit


class Commands(TyperGroup):
    """All commands, the one that runs an experiment first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """As of any group of commands."""
        return ["run", *(name for name in super().list_commands(ctx) if name != "run")]


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""T3 (Track & Trigger) as hardware: GEMM overlapped with ring reduce-scatter, in RTL, bit for bit.

    Start with [bold]t3rtl run shape --gpus 2 --shape 256 128 64[/bold], then [bold]t3rtl list[/bold];
    [bold]t3rtl doctor[/bold] says whether this machine has what it takes.
    Exit code: 0 the result is right, 1 it is wrong, 2 bad input, 3 the machine failed, 130 interrupted.""",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"t3rtl {release()}, commit {commit()}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Show version and commit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Options before the name of a command."""


app.add_typer(run, name="run")
app.command("reduce")(reduce)
app.command("list")(show_list)
app.command("explain")(explain)
app.command("sweep")(sweep)
app.command("report")(report)
app.command("compare")(compare)
app.command("doctor")(doctor)
app.command("regress")(regress)
app.command("bench")(bench)
app.command("faults")(faults)
app.command("sequences")(sequences)
app.command("calibrate")(calibrate)
app.command("alternatives")(alternatives)
app.command("dram-trace")(dram_trace)
app.command("vectors")(vectors)
app.command("verilog")(verilog)
app.command("synth")(synth)

WRONG, BAD_INPUT, MACHINE_FAILED, INTERRUPTED = 1, 2, 3, 130


def command_line(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. Errors have been printed."""
    try:
        code = app(list(arguments) or ["--help"], prog_name="t3rtl", standalone_mode=False) or 0
        # Typer makes an exit code of Ctrl-C by itself.
        return _interrupted() if code == INTERRUPTED else code
    except UsageError as error:
        return _refuse(str(error))
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted()
    except BrokenPipeError:
        silence_broken_pipe()
        return MACHINE_FAILED
    except MachineError as error:
        return _failed(str(error))
    except SimulationError as error:
        print_error(f"t3rtl: {error}")
        return WRONG
    except MemoryError:
        return _failed("out of memory")
    except OSError as error:
        return _failed(sentence_of(error))
    except Exception as error:
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        return _refuse(message())


def _interrupted() -> int:
    """End what still runs, and say so; 130."""
    end_children()
    print("t3rtl: interrupted", file=sys.stderr)
    return INTERRUPTED


def _failed(text: str) -> int:
    """Print the first line of `text`, which is a sentence, and what follows of a tool's output; 3."""
    print_error(f"t3rtl: {text}")
    return MACHINE_FAILED


def _refuse(sentence: str) -> int:
    """Print `sentence` as one line on standard error; 2."""
    print(f"t3rtl: {' '.join(sentence.split())}", file=sys.stderr)
    return BAD_INPUT


def main() -> None:
    """Entry point of the command `t3rtl`."""
    adopt_orphans()
    sys.exit(command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
