"""A learner, kernels and a protocol for smpc-dp."""
