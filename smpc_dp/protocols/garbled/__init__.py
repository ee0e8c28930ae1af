"""Two parties evaluate a Boolean circuit on their private inputs: garbled circuits and oblivious transfer.

`protocols/pairwise/README.md` is the specification.
"""
