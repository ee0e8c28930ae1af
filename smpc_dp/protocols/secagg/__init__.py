"""The secure sum: masks of pairs cancel in the total, which a relay adds up.

`protocols/secagg/README.md` is the specification.
"""
