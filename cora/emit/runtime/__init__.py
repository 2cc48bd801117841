"""C headers that generated and hand-written native code share."""
