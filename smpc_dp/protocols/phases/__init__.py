"""Phases of protocols, from which protocols are assembled; the parts of all roles in a phase are in one file."""
