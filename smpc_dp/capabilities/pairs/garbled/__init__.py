"""Two-party evaluation of a Boolean circuit on private inputs: garbled circuits and oblivious transfer.

Specification: `protocols/pairwise/README.md`.
"""
