"""Every reason of the rules is a sentence that a person can read."""

from __future__ import annotations

import pytest

from hybrid.domain.reasons import (
    AlreadyStopping,
    BudgetClosed,
    DoesNotPreempt,
    Guaranteed,
    InUse,
    KeptForOthers,
    NotAMember,
    NotIdleYet,
    QuietTime,
    Reason,
    SwitchedOff,
    TooMuchPreempted,
    TooYoung,
    WaitedTooLong,
    as_dict,
)

SENTENCES: list[tuple[Reason, str]] = [
    (
        BudgetClosed("all", 0.85, 0.8),
        "budget all is used to 85%; from 80% on no new machine is asked for",
    ),
    (SwitchedOff("burst"), "the policy has burst switched off"),
    (QuietTime("22:00", "06:00", "UTC"), "quiet hours, 22:00 to 06:00 UTC"),
    (KeptForOthers("h100", ("team a", "team b")), "h100 is reserved for team a, team b"),
    (NotAMember("ann", "red"), "ann is not a member of team red"),
    (DoesNotPreempt("high", "low"), "priority high does not preempt priority low"),
    (TooYoung(61.2, 600), "has run for 1m1s; it is left alone for 10m"),
    (AlreadyStopping("j1.1"), "run j1.1 is stopping already"),
    (
        WaitedTooLong(7200, 3600),
        "began after waiting 2h, longer than its class's 1h: it is not sent back",
    ),
    (Guaranteed("red", 4, 3), "team red is guaranteed 4 GPUs and would be left with 3"),
    (
        TooMuchPreempted(2.5, -1),
        "would throw 2.5 GPU-hours of work away; the policy leaves 0.0 in this hour",
    ),
    (NotIdleYet(30, 300), "idle for 30s; it ends after 5m"),
    (InUse("c1"), "c1 is in use or not there yet"),
]


@pytest.mark.parametrize(("reason", "sentence"), SENTENCES, ids=lambda value: type(value).__name__)
def test_a_reason_reads_as_a_sentence_and_carries_its_fields(reason: Reason, sentence: str):
    assert str(reason) == sentence
    row = as_dict(reason)
    assert (row["code"], row["text"]) == (reason.code, sentence)
    assert len(row) > 2


def test_codes_are_unique():
    codes = [reason.code for reason, _ in SENTENCES]
    assert len(set(codes)) == len(codes)
