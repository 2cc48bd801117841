"""Partitioning: decides what runs and what is kept where."""

from cora.partition.planner import plan, verify_plan

__all__ = ["plan", "verify_plan"]
