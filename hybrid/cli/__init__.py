"""The command line. Thin: what it does is done by services, the client, the agent and the API.

Nothing that :mod:`hybrid.cli.main` imports may be slow to import: a command's module is imported
when that command is called.
"""
