"""A learner, a kernel and a protocol for smpc-dp."""
