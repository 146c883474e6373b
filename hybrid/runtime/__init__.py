"""The loop: observe → sync → plan → lint → commit → act.

The only place where planning meets threads, clocks and ports. Simulation runs the same
:class:`~hybrid.runtime.tick.Tick` with a simulated clock and simulated ports.
"""
