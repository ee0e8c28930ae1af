"""Phases of which protocols are assembled; a module has a phase's functions for all roles."""
