"""Use cases behind the API and the command line.

A service reads and writes through the ports, knows who asks, and answers with domain values or
raises a :class:`~hybrid.services.errors.ServiceError`. It knows nothing of HTTP.
"""
