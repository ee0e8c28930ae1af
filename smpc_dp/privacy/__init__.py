"""Planners, samplers and the privacy accountant: what a run costs in privacy, decided before it starts.

Nothing here sends a message or holds a secret. `secagg_plan` chooses the degree and the threshold of a
secure aggregation and bounds the probability that the choice fails; `hypergeometric` has the tail bounds.
`gaussian` is the exact trade-off of Gaussian noise; `gopa` plans private averaging with correlated noise.
`mechanisms` add noise of `distributions`, drawn by `sampling`; `accountant` composes their privacy losses and
keeps the ledgers; `empirical` looks for violations; `guarantee` has the claim that a result carries.
`pairwise_plan` with its local baselines, `network`, `dp_sgd` and `collaboration` plan noise and error under
differential privacy. docs/proofs/planners.md proves the claims.
"""
