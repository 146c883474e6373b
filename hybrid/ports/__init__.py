"""What the engine needs from outside: protocols and typed errors.

Protocols are synchronous. The runtime gives each call a thread and a deadline; an implementation
gives each of its own outside calls a timeout below that.
"""
