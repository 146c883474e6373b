"""The schema's history. Each step is written once and never changed."""

REVISIONS = ("0001", "0002", "0003")
"""Every schema this program knows, oldest first."""

HEAD = REVISIONS[-1]
