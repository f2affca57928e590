"""An experiment in ten lines: one sub-layer of the paper at full size, one after the other and overlapped."""

from sim.experiments.catalogue import layer
from sim.experiments.experiment import run_experiment

results = {name: run_experiment(layer("t-nlg/fc-2/tp8", name)) for name in ("sequential", "t3-mca")}
for name, result in results.items():
    assert result["passed"], result["errors"]
    print(f"{name:12} {result['cycles'] / 1000:8.1f} us")
print(f"speedup      {results['sequential']['cycles'] / results['t3-mca']['cycles']:8.3f}")
