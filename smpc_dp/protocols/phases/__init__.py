"""Phases of protocols, from which protocols are assembled; a phase's functions for all roles are in one file."""
