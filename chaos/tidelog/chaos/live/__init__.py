"""Real processes under real faults, judged by the same checks as the simulated ones.

Owns starting and killing nodes, the workload while it happens, an independent reader, and the gate
that calls a run without visible faults invalid rather than green. The checks themselves live in
`tidelog.chaos.checkers`.
"""
