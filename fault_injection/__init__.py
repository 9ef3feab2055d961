"""Floor 4: faults on demand (plans, campaigns and the oracle that judges them). Empty so far."""
