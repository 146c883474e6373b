"""A Compute Engine on this machine, reached by endpoint only.

Zonal instances with operations, ``requestId``, templates, quotas, zones that run dry, preemption,
listings that lag, answers that are lost after the deed; the billing catalogue; the metadata
service. Instances are rows: no processes stand behind them.

- ``config``: what the cloud looks like (``GceConfig``)
- ``cloud``: the whole of it inside a test process (``GceCloud``); as a process of its own it is
  ``python -m providers.sandbox.gce``
- ``state``: instances and operations in the cloud's own time
- ``api``: the REST faces; ``inserts``: launches; ``listing``: filters, fields and pages
- ``metadata``: what machines ask; ``control``: what operators do to the cloud
- ``catalogue``: machine types and prices; ``billing``: the billing catalogue
"""
