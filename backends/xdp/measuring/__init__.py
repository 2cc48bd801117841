"""Measures what packets cost on this machine between the kernel half and the user half, for the model of XDP."""
