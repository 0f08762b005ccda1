"""GRPO-RoC as pure functions: selection, advantage, loss, statistics. No I/O.

Import from the modules (``rstar2.algorithm.roc`` …); the package itself imports
nothing, so that statistics can be used without loading torch.
"""
