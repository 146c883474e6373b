"""A cloud on this machine, reached by endpoint only.

The sandbox speaks the EC2, S3, Pricing and Service Quotas wire protocols on a loopback port, acts
as every machine that EC2 says is running, and keeps its own clock, prices and bill. It is a process
of its own that outlives the server that uses it. Nothing here imports the engine: what the rest of
the system knows about a sandbox cloud is its address.

- ``process``: start, find and stop a sandbox process (``start_sandbox``, ``SandboxHandle``)
- ``control``: a typed client of its control API (``SandboxControl``)
- ``cloud``: the same cloud inside a test process (``SandboxCloud``)
- ``config``: what a sandbox cloud looks like (``SandboxConfig``)
"""
