"""Phases of protocols, from which protocols are assembled: one file has a phase's functions for all roles."""
