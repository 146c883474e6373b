"""The engine: decides, remembers, drives."""
