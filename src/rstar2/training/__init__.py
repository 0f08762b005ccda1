"""Training: the laptop's stand-in for a base model, SFT, GRPO-RoC, curriculum."""
