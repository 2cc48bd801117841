"""Measures what packet work costs on this machine, and keeps it as a calibration of the host model."""
