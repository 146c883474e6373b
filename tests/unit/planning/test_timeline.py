"""What is free on a node from now on."""

from __future__ import annotations

from hybrid.planning.timeline import Timeline


def test_devices_are_free_again_when_what_holds_them_ends() -> None:
    line = Timeline(0.0, 0b11, 8, 64)
    line.hold(0.0, 100.0, 0b01, 4, 32, variance=9.0)
    assert line.earliest(0.0, 50.0, 0b11, 1, 4, 32) == (0.0, 0b10, 0.0)
    assert line.earliest(0.0, 50.0, 0b11, 2, 4, 32) == (100.0, 0b11, 9.0)


def test_a_hole_before_a_reservation_takes_only_what_fits_into_it() -> None:
    line = Timeline(0.0, 0b1, 8, 64)
    line.hold(100.0, 200.0, 0b1, 1, 1)
    assert line.earliest(0.0, 100.0, 0b1, 1, 1, 1) == (0.0, 0b1, 0.0)
    assert line.earliest(0.0, 101.0, 0b1, 1, 1, 1) == (200.0, 0b1, 0.0)


def test_the_same_devices_must_be_free_throughout() -> None:
    line = Timeline(0.0, 0b11, 8, 64)
    line.hold(0.0, 50.0, 0b01, 1, 1)
    line.hold(50.0, 100.0, 0b10, 1, 1)
    assert line.earliest(0.0, 80.0, 0b11, 1, 1, 1) == (50.0, 0b01, 0.0)


def test_cores_and_memory_count_as_devices_do() -> None:
    line = Timeline(0.0, 0b1, 8, 64)
    line.hold(0.0, 100.0, 0, 6, 10)
    line.hold(0.0, 200.0, 0, 1, 50)
    assert line.earliest(0.0, 10.0, 0, 0, 2, 1) == (100.0, 0, 0.0)
    assert line.earliest(0.0, 10.0, 0, 0, 1, 20) == (200.0, 0, 0.0)


def test_what_never_becomes_free_has_no_start() -> None:
    assert Timeline(0.0, 0b1, 8, 64).earliest(0.0, 10.0, 0b10, 1, 1, 1) is None


def test_a_start_may_be_asked_for_later_than_now() -> None:
    line = Timeline(0.0, 0b1, 8, 64)
    assert line.earliest(30.0, 10.0, 0b1, 1, 1, 1) == (30.0, 0b1, 0.0)
    assert line.earliest(-5.0, 10.0, 0b1, 1, 1, 1) == (0.0, 0b1, 0.0)


def test_links_may_refuse_what_is_free() -> None:
    line = Timeline(0.0, 0b111, 8, 64)
    line.hold(0.0, 40.0, 0b001, 1, 1)
    pair = line.earliest(0.0, 10.0, 0b111, 2, 1, 1, lambda mask: mask & 0b011 == 0b011)
    assert pair == (40.0, 0b111, 0.0)


def test_what_is_free_throughout_a_window() -> None:
    line = Timeline(0.0, 0b11, 8, 64)
    line.hold(10.0, 20.0, 0b01, 6, 1)
    assert line.free_throughout(0.0, 10.0, 8, 64) == 0b11
    assert line.free_throughout(0.0, 11.0, 2, 1) == 0b10
    assert line.free_throughout(0.0, 11.0, 3, 1) is None


def test_a_copy_is_independent() -> None:
    line = Timeline(0.0, 0b1, 8, 64)
    twin = line.copy()
    twin.hold(0.0, 10.0, 0b1, 8, 64)
    assert line.earliest(0.0, 10.0, 0b1, 1, 8, 64) == (0.0, 0b1, 0.0)
    assert twin.earliest(0.0, 10.0, 0b1, 1, 8, 64) == (10.0, 0b1, 0.0)
