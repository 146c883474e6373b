"""The node agent: runs processes or containers, checkpoints, telemetry, lease watchdog."""
