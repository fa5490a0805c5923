"""The metrics of runs: samples of their nodes, what follows from them, and where they are kept."""
