"""Two-party evaluation that convicts a garbler that cheats: publicly verifiable covert security.

Specification: `protocols/covert/README.md`.
"""
