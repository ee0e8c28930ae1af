"""What a run gives away, decided before it starts: planners, samplers and the accountant.

Nothing here talks to anybody or holds a secret. `secagg_plan` chooses the degree and the threshold of a
secure aggregation and says how likely, at most, the choice is to fail; `hypergeometric` has the tail bounds.
`pairwise_plan` with its local rivals, `network`, `dp_sgd` and `collaboration` plan noise and error under
differential privacy; docs/planners.md proves what they claim.
"""
