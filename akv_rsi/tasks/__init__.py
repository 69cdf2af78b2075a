"""Tasks: environments, suites, the reference agent, cost and evaluation."""
