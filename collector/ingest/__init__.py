"""Takes batches in: who sent them, whether they stand in their chain, and the acknowledgement."""
