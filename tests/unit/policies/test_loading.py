"""Malformed documents, each with the line, the path and what to do."""

from __future__ import annotations

import pytest

from policies.document import PolicyDocument
from policies.loading import MAX_PROBLEMS, PolicyError, decoded, dotted, parse_policy
from policies.yaml_source import MAX_BYTES

ALIAS_BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n"
    for below, name in zip("abcdef", "bcdefg", strict=True)
)

MALFORMED = [
    # text, line, column, path, part of the message, part of the hint
    ("burst:\n  margn: 1\n", 2, 3, "burst.margn", "no such field", "did you mean margin?"),
    ("margin: 3\n", 1, 1, "margin", "no such field", "it belongs under burst"),
    ("bursts: {}\n", 1, 1, "bursts", "no such field", "did you mean burst?"),
    ("zzz: 1\n", 1, 1, "zzz", "no such field", "known: aging, budgets, burst"),
    ("scheduling: fifoo\n", 1, 13, "scheduling.strategy", "'fifo'", "did you mean fifo?"),
    ("scheduling: [fifo]\n", 1, 13, "scheduling", "must be a mapping", "name: value"),
    ("scheduling: {strategy: [x]}\n", 1, 24, "scheduling.strategy", "", "known: best_fit"),
    (
        "teams:\n  ml:\n    classes: [high, hgih]\n",
        3,
        21,
        "teams.ml.classes[1]",
        "no priority class 'hgih'",
        "did you mean high?",
    ),
    ("teams:\n  Bad Name: {}\n", 2, 3, "teams.Bad Name", "is not a name", "lower case"),
    ("teams:\n  ml:\n    regions: [EU]\n", 3, 15, "teams.ml.regions[0]", "'EU'", "lower case"),
    (
        "priority_classes:\n  gold:\n    value_per_hour: 3\n",
        2,
        3,
        "priority_classes.gold.rank",
        "must be given",
        "add rank: higher goes first",
    ),
    ("budgets:\n- name: a\n", 2, 3, "budgets[0].limit_usd", "must be given", "add limit_usd"),
    (
        "budgets:\n- {name: a, limit_usd: -1}\n",
        2,
        24,
        "budgets[0].limit_usd",
        "must be at least 0",
        "it is -1",
    ),
    (
        "budgets:\n- {name: a, limit_usd: 1}\n- {name: a, limit_usd: 2}\n",
        3,
        10,
        "budgets[1].name",
        "two budgets called 'a'",
        "a name of its own",
    ),
    (
        "budgets:\n- {name: a, limit_usd: 1, scope: team}\n",
        2,
        3,
        "budgets[0]",
        "names its subject",
        "add subject: the team it limits",
    ),
    (
        "budgets:\n- {name: a, limit_usd: 1, subject: ml}\n",
        2,
        36,
        "budgets[0].subject",
        "covers everyone",
        "set scope to team",
    ),
    (
        "budgets:\n- {name: a, limit_usd: 1, timezone: Europe/Berln}\n",
        2,
        37,
        "budgets[0].timezone",
        "is not a time zone",
        "did you mean Europe/Berlin?",
    ),
    (
        "burst:\n  quiet_hours:\n  - {start: 22:00, until: 25:00}\n",
        3,
        27,
        "burst.quiet_hours[0].until",
        "'25:00' is not a time of day",
        "HH:MM",
    ),
    (
        "burst:\n  quiet_hours:\n  - {start: 22:00, until: 06:00, timezone: Mars/X}\n",
        3,
        44,
        "burst.quiet_hours[0].timezone",
        "is not a time zone",
        "",
    ),
    (
        "burst:\n  quiet_hours:\n  - {start: 22:00, until: 22:00}\n",
        3,
        5,
        "burst.quiet_hours[0]",
        "start and until are the same",
        "",
    ),
    (
        "burst:\n  quiet_hours:\n  - {start: 1, until: 06:00}\n",
        3,
        13,
        "burst.quiet_hours[0].start",
        "must be text",
        "quotes",
    ),
    ("burst: 3\n", 1, 8, "burst", "must be a mapping", "name: value"),
    ("burst:\n  markets: spot\n", 2, 12, "burst.markets", "must be a list", "- a"),
    ("burst:\n  markets: [spott]\n", 2, 13, "burst.markets[0]", "spot", "did you mean spot?"),
    ("burst:\n  enabled: maybe\n", 2, 12, "burst.enabled", "true or false", "true or false"),
    ("burst:\n  margin_usd: lots\n", 2, 15, "burst.margin_usd", "amount in USD", "12.50"),
    (
        "burst:\n  ceilings:\n    machines: 1.5\n",
        3,
        15,
        "burst.ceilings.machines",
        "whole number",
        "",
    ),
    ("retire:\n  idle_after: soon\n", 2, 15, "retire.idle_after", "not a duration", ""),
    ("spot:\n  notice_margin: -5\n", 2, 18, "spot.notice_margin", "between 0 and ten years", ""),
    (
        "spot: {max_interruptions_per_hour: .nan}\n",
        1,
        36,
        "spot.max_interruptions_per_hour",
        "finite",
        "",
    ),
    ("aging:\n  max: 1e999\n", 2, 8, "aging.max", "finite", ""),
    ("aging:\n  max: !!float x\n", 2, 8, "aging.max", "must be a number", ""),
    (
        "placement:\n  reserved:\n  - {models: [h200x], teams: [a]}\n",
        3,
        15,
        "placement.reserved[0].models[0]",
        "no GPU is called 'h200x'",
        "did you mean h200?",
    ),
    (
        "placement:\n  reserved:\n  - {models: ['@'], teams: [a]}\n",
        3,
        15,
        "placement.reserved[0].models[0]",
        "no GPU is called '@'",
        "",
    ),
    (
        "placement:\n  reserved:\n  - {models: [h100]}\n",
        3,
        5,
        "placement.reserved[0]",
        "for nobody",
        "",
    ),
    (
        "placement:\n  reserved:\n  - {models: [h100], classes: [vip]}\n",
        3,
        32,
        "placement.reserved[0].classes[0]",
        "no priority class 'vip'",
        "known: high, low",
    ),
    ("aging:\n  per_hour: true\n", 2, 13, "aging.per_hour", "must be a number", "quotes"),
    (
        "budgets:\n- {name: a, limit_usd: 2e12}\n",
        2,
        24,
        "budgets[0].limit_usd",
        "at most 1,000,000,000",
        "it is",
    ),
    (
        "budgets:\n- {name: a, limit_usd: 1, period: monthly}\n",
        2,
        35,
        "budgets[0].period",
        "must be 'day', 'week', 'month'",
        "did you mean month?",
    ),
    (
        'budgets:\n- {name: a, limit_usd: 1, scope: job, subject: "a\\0"}\n',
        2,
        48,
        "budgets[0].subject",
        "is not a team, user or job",
        "control characters",
    ),
    (
        "budgets:\n- {name: a, limit_usd: 1, thresholds: [{at: 80%, action: notify}]}\n",
        2,
        45,
        "budgets[0].thresholds[0].at",
        "must be a number",
        "units",
    ),
    ("teams: [ml]\n", 1, 8, "teams", "must be a mapping", "name: value"),
    ("teams:\n  ml:\n", 2, 6, "teams.ml", "must be a mapping", "write {}"),
    ("teams:\n  ml: {members: [1]}\n", 2, 18, "teams.ml.members[0]", "must be text", "quotes"),
    (
        "teams:\n  a: &a {weight: 2}\n  b: {<<: *a}\n",
        3,
        7,
        "teams.b.<<",
        "no such field",
        "merge keys are not read",
    ),
    ("x-base: &b {weight: 2}\n", 1, 1, "x-base", "no such field", "used first"),
    ("teams:\n  a: {weight: 0}\n", 2, 15, "teams.a.weight", "must be more than 0", "it is 0"),
    ("\ufeffburst: {margn: 1}\n", 1, 9, "burst.margn", "no such field", "margin?"),
    (
        "placement: {reserved: [{models: [1], teams: [a]}]}\n",
        1,
        34,
        "placement.reserved[0].models[0]",
        "must be text",
        "quotes",
    ),
    ("burst: @spot\n", 1, 8, "", "not YAML", "in quotes"),
    ("burst: a: b\n", 1, 9, "", "not YAML", "': ' in it in quotes"),
    ("burst:\n  margin: 1\n margin_usd: 2\n", 3, 2, "", "not YAML", "the same column"),
    ('burst: "open\n', 2, 1, "", "not YAML", "close the quotes"),
    ("%YAML 3.0\n---\nburst: {}\n", 1, 1, "", "not YAML", "%YAML"),
    ("\x00\x01", 1, 1, "", "character that YAML does not allow", "UTF-8"),
    ("burst: {}\nspot: {}\nburst: {}\n", 3, 1, "burst", "given twice", "line 1"),
    ("- burst\n", 1, 1, "", "a mapping of sections", "known: scheduling"),
    ("just text\n", 1, 1, "", "a mapping of sections", ""),
    ("burst: {margin: 1\n", 2, 1, "", "not YAML", ""),
    ("burst:\n\tmargin: 1\n", 2, 1, "", "not YAML", "spaces, not tabs"),
    ("burst: *nope\n", 1, 8, "", "undefined alias", ""),
    ("burst: {}\n---\nspot: {}\n", 2, 1, "", "another document", ""),
    ("burst: !!python/object/apply:os.system [x]\n", 1, 8, "burst", "the tag !!python", "leave"),
    ("? [a]\n: b\n", 1, 3, "", "a key is a name", ""),
    ("burst: \x07\n", 1, 8, "", "character that YAML does not allow", "UTF-8"),
    ("&a [*a]\n", 1, 1, "", "too deep", "aliases"),
    (ALIAS_BOMB, 1, 17, "", "too many", "aliases"),
    ("a: " + "[" * 50, 1, 35, "", "deeper than 32", ""),
    ("a: " + "[" * 50_000, 1, 35, "", "deeper than 32", ""),
    ("# " + "x" * MAX_BYTES, 1, 1, "", "too many", str(MAX_BYTES)),
]


@pytest.mark.parametrize(
    ("text", "line", "column", "path", "message", "hint"),
    MALFORMED,
    ids=[f"{i}-{case[3] or case[4]}" for i, case in enumerate(MALFORMED)],
)
def test_a_malformed_document_is_refused_with_its_place_and_a_hint(
    text: str, line: int, column: int, path: str, message: str, hint: str
):
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    problem = caught.value.problems[0]
    assert (problem.path, message in problem.message) == (path, True), problem
    assert hint in problem.hint, problem
    if text is not ALIAS_BOMB:
        assert (problem.line, problem.column) == (line, column)


def test_all_problems_are_told_in_the_order_of_the_text():
    with pytest.raises(PolicyError) as caught:
        parse_policy("spot: {notice: 1}\naging: {max: x}\nburst: 3\n")
    assert [(p.line, p.path) for p in caught.value.problems] == [
        (1, "spot.notice"),
        (2, "aging.max"),
        (3, "burst"),
    ]
    assert str(caught.value).splitlines()[0] == (
        "line 1, column 8: spot.notice: there is no such field (did you mean notice_margin?)"
    )


def test_a_flood_of_problems_is_bounded():
    text = "".join(f"x{i}: 1\n" for i in range(MAX_PROBLEMS + 30))
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    assert len(caught.value.problems) == MAX_PROBLEMS


def test_a_problem_without_path_or_hint_reads_well():
    with pytest.raises(PolicyError) as caught:
        parse_policy("? [a]\n: b\n")
    assert str(caught.value) == "line 1, column 3: a key is a name, not a list or a mapping"


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"burst:\n  # caf\xe9\n", 2, 8),
        ("burst: {}".encode("utf-16"), 1, 1),
        (b"\x1f\x8b\x08\x00", 1, 2),
        ("# \u00e9\u00e9".encode() + b"\xff", 1, 5),
    ],
)
def test_a_file_that_is_no_text_is_refused_with_the_place_of_the_first_such_byte(
    data: bytes, line: int, column: int
):
    with pytest.raises(PolicyError) as caught:
        decoded(data)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.hint) == (line, column, "save the file as UTF-8")


def test_a_byte_order_mark_is_passed_over():
    assert decoded(b"\xef\xbb\xbfburst: {}") == "burst: {}"


@pytest.mark.parametrize("text", ["", "# nothing\n", "null\n", "---\n", "burst:\nteams:\n"])
def test_an_empty_document_is_the_default_policy(text: str):
    assert parse_policy(text) == PolicyDocument()


def test_an_alias_may_be_used():
    policy = parse_policy("teams:\n  red: &team {weight: 2}\n  blue: *team\n")
    assert policy.teams["red"] == policy.teams["blue"]


def test_numbers_and_words_of_old_yaml_stay_text_where_text_is_meant():
    policy = parse_policy("teams:\n  123: {members: [yes, 0x10]}\n  off: {}\n")
    assert policy.teams["123"].members == ("yes", "0x10")
    assert set(policy.teams) == {"123", "off"}


def test_a_number_too_long_to_read_quickly_is_refused_as_text():
    with pytest.raises(PolicyError, match="must be a number"):
        parse_policy("aging:\n  max: " + "_".join("9" * 5000) + "x")


def test_paths_are_written_as_people_write_them():
    assert dotted(("burst", "quiet_hours", 0, "start")) == "burst.quiet_hours[0].start"
    assert dotted(()) == ""
