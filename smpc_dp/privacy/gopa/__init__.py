"""The privacy of GOPA [Bellet 2021, section 4.1]."""
