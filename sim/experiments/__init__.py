"""From what is asked to a judged result: specifications, runs, checks, results, scenarios, sweeps."""
