"""Protocol `ustatistic`: the mean of a kernel over pairs of parties, by garbled evaluations."""
