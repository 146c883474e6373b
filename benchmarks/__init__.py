"""Figures of the planner beside the published ones, on the same input: each module prints one JSON
object on its last line."""
