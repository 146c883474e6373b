"""The same loop in a made-up world: a clock that jumps, clouds and nodes that are objects.

========================  ======================================================================
:mod:`.clock`             time that passes when told to
:mod:`.cloud`             a CapacityProvider with prices, scarcity, lags and lost answers
:mod:`.engine`            a WorkloadRuntime whose nodes take orders, hold leases and fall silent
:mod:`.running`           runs as they go on there: gangs that work, checkpoint, stop and die
:mod:`.world`             the two joined: machines boot into nodes, and nodes end with machines
:mod:`.drive`             the real loop over a store, tick by tick
:mod:`.memory_store`      a store without a database, held to the same suite as the others
========================  ======================================================================

Nothing here decides anything. What is decided comes from planning and reconcile, as in life.
"""
