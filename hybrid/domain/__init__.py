"""The words of the product as values: no I/O, no clock, no randomness.

Instants are seconds since the Unix epoch (UTC) in fields named ``..._at``; durations inside are
float seconds in fields named ``..._s``; money is integer micro-dollars in fields named
``..._micros``. What people write (:class:`~hybrid.domain.job_spec.JobSpec`,
:mod:`~hybrid.domain.pool_spec`) is a frozen pydantic model; what the system keeps is a frozen,
slotted dataclass that changes only through its transition table. Those that a plan makes by the ten
thousands are frozen to the type checker alone: :mod:`~hybrid.domain.hot_values`.
"""
