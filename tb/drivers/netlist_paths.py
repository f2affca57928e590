"""Which inputs of a component its outputs depend on in the same cycle, found in its netlist."""

from amaranth.hdl import Fragment, Value
from amaranth.hdl._ir import build_netlist
from amaranth.hdl._nir import Net, Netlist
from amaranth.lib import wiring

CLOCKS = ("clk", "rst")


def combinational_inputs(component: wiring.Component) -> dict[str, set[str]]:
    """Output port -> inputs from which a path without a register leads to it; names of ports in arrays have their place
    behind two underscores. What an `Instance` does is not known: paths end there."""
    flat = component.signature.flatten(component)
    ports = [("__".join(map(str, path)), Value.cast(value), None) for path, _, value in flat]
    netlist = build_netlist(Fragment.get(component, None), ports)
    inputs = {
        Net.from_cell(0, first + bit): name
        for name, (first, width) in netlist.top.ports_i.items()
        for bit in range(width)
    }
    known: dict[Net, frozenset[str]] = {}
    answer = {}
    for name, nets in netlist.top.ports_o.items():
        found: frozenset[str] = frozenset().union(*(_reaching(netlist, inputs, net, known) for net in nets))
        answer[name] = set(found.difference(CLOCKS))
    return answer


def _reaching(netlist: Netlist, inputs: dict[Net, str], end: Net, known: dict[Net, frozenset[str]]) -> frozenset[str]:
    """Inputs that reach net `end`; `known` keeps what was found on the way."""
    waiting = [end]
    while waiting:
        net = waiting[-1]
        if net in known:
            waiting.pop()
        elif net.is_const or net in inputs:
            known[net] = frozenset([inputs[net]] if net in inputs else [])
        else:
            sources = [source for source, _ in netlist.cells[net.cell].comb_edges_to(net.bit)]
            missing = [source for source in sources if source not in known]
            if missing:
                waiting += missing
            else:
                known[net] = frozenset().union(*(known[source] for source in sources))
    return known[end]
