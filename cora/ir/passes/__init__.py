"""Passes: valid IR in, valid IR out, the same packets and the same state."""
