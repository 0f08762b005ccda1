"""From raw sets of problems to a pool with integer answers that the reward can trust."""
