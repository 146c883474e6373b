"""The policy document a platform team writes, and its rules as pure functions."""
