"""A stage of RL, or the cold start, as a job of verl: settings, data, checkpoints. No verl here."""
