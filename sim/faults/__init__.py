"""Campaigns of faults: what can go wrong in a run, samples of it on fork servers, and what comes of them."""
