"""Whether runs that are killed go on bit for bit.

Run ``python -m benchmarks.resume``. For each seed the SFT policy and an arm of GRPO-RoC are made
twice, in checkouts of their own: once undisturbed, the reference, and once killed five times by
SIGKILL, in pretrain, SFT, RL, mining and evaluation. The moment within a phase is uniform over
its length in the reference, one in each quarter of it when there are four seeds. Then all
records and all weights are compared, byte for byte.
"""
