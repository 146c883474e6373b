"""A story to watch: real jobs on this machine and in a sandbox cloud."""
