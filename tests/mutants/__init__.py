"""Named mutations of the library: the tests of the concerned part must catch each of them."""
