"""The planner: a snapshot and a policy in, a plan out. Pure; one file per step."""
