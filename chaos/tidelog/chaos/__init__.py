"""Breaking things on purpose: the simulated cluster, workloads, and checks on what clients saw.

`sim` runs whole nodes in one thread under a seed; `workloads` drive them as clients do; `checkers`
judge the history that the clients wrote down. Nothing of a node may import this package.
"""
