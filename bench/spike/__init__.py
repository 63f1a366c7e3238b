"""Short measurements that a decision rests on: `python -m bench.spike.<name>`, each ≤ 3 min."""
