"""What a run gives away, decided before it starts: planners, samplers and the accountant.

Nothing here talks to anybody or holds a secret. `secagg_plan` chooses the degree and the threshold of a
secure aggregation and says how likely, at most, the choice is to fail; `hypergeometric` has the tail bounds.
`gaussian` is the exact trade-off of Gaussian noise; `gopa` plans private averaging with correlated noise.
`mechanisms` add noise of `distributions` by `sampling`, `accountant` adds up what they show and keeps the
ledgers, `empirical` looks for violations, `guarantee` is what results say. `pairwise_plan` with its local
rivals, `network`, `dp_sgd` and `collaboration` plan noise and error under differential privacy;
docs/proofs/planners.md proves what they claim.
"""
