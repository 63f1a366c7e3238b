"""Short measurements that a design decision rests on: `python -m bench.spike.<name>`, each ≤ 3 min."""
