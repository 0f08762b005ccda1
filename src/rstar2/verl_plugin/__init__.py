"""The seams of verl 0.9.1: adapters around our own functions, and nothing else."""
