"""Questions about a plan: what binds it, what would change it, what its packets cost, how large its tables must be.

Answers that a plan document alone cannot give are computed from the program, the profile and the target it was made
for (`cora.explain.subject`); everything that would change a plan is really planned again.
"""
