"""The same loop in a made-up world: a clock that jumps, clouds and nodes that are objects.

========================  ======================================================================
:mod:`.clock`             time that passes when told to
:mod:`.cloud`             a CapacityProvider with prices, scarcity, lags and lost answers
:mod:`.engine`            a WorkloadRuntime whose nodes work, checkpoint, stop and fall silent
:mod:`.world`             the two joined: machines boot into nodes, and nodes end with machines
:mod:`.drive`             the real loop over a store, tick by tick
========================  ======================================================================

Nothing here decides anything. What is decided comes from planning and reconcile, as in life.
"""
