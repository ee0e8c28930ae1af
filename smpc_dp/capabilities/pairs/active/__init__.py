"""Two-party evaluation that is secure against both sides: authenticated garbling.

`protocols/active/README.md` is the specification. No session offers it yet.
"""
