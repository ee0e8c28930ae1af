"""A learner, kernels, a statistic of records and a protocol for smpc-dp."""
