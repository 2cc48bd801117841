"""From a plan to source trees that build anywhere, and to programs that run: what all backends share."""
