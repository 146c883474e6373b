"""How fast money is held and settled, and whether a long ledger makes it slower.

``python -m benchmarks.ledger [--quick]`` needs no data. On each database two
ledgers are filled, of 1,000 and of 1,000,000 entries, under budgets of every scope and period; then
both take commits in turn. One round opens a claim with its hold, renews it with another, and
settles it with its charge and release: three commits, each one transaction of its own that checks
every budget. ``growth_ratio`` is the time of a commit with the long ledger over that with the short
one, the worse of the two databases. PostgreSQL is a private server on this machine.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, insert

from benchmarks.comparison import Compared
from benchmarks.machine import Stopwatch, print_line
from hybrid.domain.budget import Budget
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId, JobId, PoolName
from hybrid.domain.job_spec import Market
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.offer import Offer, offer_id
from hybrid.ports.store import Bundle, Post, Put, SetBudgets
from hybrid.store import SqlStore
from hybrid.store.tables import ledger
from tests.doubles.private_postgres import HOW_TO_GET, PrivatePostgres, find_binaries

NOW = 1_800_000_000.0
SHORT, LONG = 1_000, 1_000_000
QUICK_LONG = 100_000
ROUNDS, QUICK_ROUNDS = 1_000, 150
COMMITS = 3
"""Of one round."""
WANTED_RATIO = 1.5
HISTORY_S = 400 * 86_400.0
TEAMS, PEOPLE = 20, 200
_CHUNK = 20_000

BUDGETS = (
    Budget(name="all", period="month", timezone="Europe/Berlin", limit_usd=10**8),
    Budget(name="year", period="rolling", rolling_days=365, limit_usd=10**8),
    Budget(name="team", scope="team", subject="team-1", period="week", limit_usd=10**8),
    Budget(name="today", scope="team", subject="team-1", period="day", limit_usd=10**8),
    Budget(name="person", scope="user", subject="user-1", period="rolling", limit_usd=10**8),
    Budget(name="ever", period="lifetime", limit_usd=10**8),
)


def entries(count: int) -> Iterator[dict[str, Any]]:
    """A history: claims of many teams over more than a year, each held, charged and released."""
    draw = random.Random(count)
    for number in range(count // 3):
        begun = NOW - HISTORY_S + HISTORY_S * number * 3 / count
        held = draw.randrange(100_000, 5_000_000)
        common = {
            "claim_id": f"past-{number}",
            "team": f"team-{draw.randrange(TEAMS)}",
            "user_name": f"user-{draw.randrange(PEOPLE)}",
            "job_id": f"job-{number}",
            "memo": "",
        }
        for kind, micros, at in (
            (EntryKind.HOLD, held, begun),
            (EntryKind.CHARGE, held * 2 // 3, begun + 3000),
            (EntryKind.RELEASE, held, begun + 3000),
        ):
            yield {
                **common,
                "id": f"{kind}:past-{number}",
                "kind": kind.value,
                "amount_micros": micros,
                "at": at,
            }


def fill(url: str, count: int) -> SqlStore:
    """A store whose ledger has ``count`` entries, and its balances worked out from them."""
    store = SqlStore.open(url)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    rows = list(entries(count))
    with engine.begin() as connection:
        for first in range(0, len(rows), _CHUNK):
            connection.execute(insert(ledger), rows[first : first + _CHUNK])
    with engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")
        connection.commit()
    engine.dispose()
    store.commit([Bundle(id="budgets", changes=(SetBudgets(BUDGETS),))], at=NOW)
    return store


class Rounds:
    """Claims that are opened, renewed and settled one after the other, a second apart."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.number = 0

    def one(self) -> float:
        """Seconds of one round."""
        self.number += 1
        at = NOW + self.number
        claim = _claim(self.number, at)
        begun = time.perf_counter()
        self._commit(at, Put(claim), _post(claim, EntryKind.HOLD, 700_000, at, "0"))
        self._commit(at, _post(claim, EntryKind.HOLD, 300_000, at, "1"))
        self._commit(
            at,
            _post(claim, EntryKind.CHARGE, 400_000, at),
            _post(claim, EntryKind.RELEASE, 1_000_000, at),
        )
        return time.perf_counter() - begun

    def _commit(self, at: float, *changes: Put | Post) -> None:
        done = self.store.commit([Bundle(id="round", changes=changes)], at=at)
        if done.dropped:
            raise RuntimeError(f"a commit was dropped: {done.dropped[0].words}")


def _claim(number: int, at: float) -> Claim:
    pool = PoolName("cloud")
    offer = Offer(
        id=offer_id(pool, "a", "g5.xlarge", Market.SPOT),
        pool=pool,
        provider="aws",
        region="r",
        zone="a",
        machine_type="g5.xlarge",
        market=Market.SPOT,
        gpus=1,
        gpu_model="a10g",
        gpu_memory_gib=22.5,
        links_gbps=((0.0,),),
        cpus=4,
        memory_gib=16,
        architecture="x86_64",
        price_micros_per_hour=400_000,
        price_ceiling_micros_per_hour=1_000_000,
        priced_at=at,
        price_source="benchmark",
    )
    return Claim(
        id=ClaimId(f"c-{number}"),
        pool=pool,
        offer=offer,
        state=ClaimState.REQUESTED,
        token="0" * 64,
        request="{}" * 200,
        requested_at=at,
        team="team-1",
        user="user-1",
        job_id=JobId(f"j-{number}"),
        held_micros=700_000,
    )


def _post(claim: Claim, kind: EntryKind, micros: int, at: float, more: str = "") -> Post:
    return Post(
        LedgerEntry(
            id=f"{kind}:{claim.id}:{more}",
            kind=kind,
            claim_id=claim.id,
            amount_micros=micros,
            at=at,
            team=claim.team,
            user=claim.user,
            job_id=claim.job_id,
        )
    )


def measure(short: SqlStore, long: SqlStore, rounds: int) -> tuple[float, float]:
    """Median seconds of a round with the short and with the long ledger, taken in turn so that
    whatever else this machine does weighs on both."""
    contenders = Rounds(short), Rounds(long)
    for contender in contenders:  # caches and plans
        for _ in range(10):
            contender.one()
    taken = [(contenders[0].one(), contenders[1].one()) for _ in range(rounds)]
    return statistics.median(s for s, _ in taken), statistics.median(x for _, x in taken)


@contextmanager
def databases(name: str) -> Iterator[tuple[str, str]]:
    """Two empty databases of a kind."""
    with ExitStack() as held:
        if name == "sqlite":
            folder = held.enter_context(tempfile.TemporaryDirectory(prefix="hybrid-ledger-"))
            yield f"sqlite:///{Path(folder) / 'short.db'}", f"sqlite:///{Path(folder) / 'long.db'}"
            return
        binaries = find_binaries()
        if binaries is None:
            raise SystemExit(HOW_TO_GET)
        server = PrivatePostgres(binaries)
        held.callback(server.stop)
        yield server.create(), server.create()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.ledger", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_LONG:,} entries, few rounds")
    arguments = parser.parse_args(argv)
    watch = Stopwatch()
    long_entries = QUICK_LONG if arguments.quick else LONG
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    per_s: dict[str, float] = {}
    short_per_s: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name in ("sqlite", "postgresql"):
        with (
            databases(name) as (short_url, long_url),
            fill(short_url, SHORT) as short,
            fill(long_url, long_entries) as long,
        ):
            short_s, long_s = measure(short, long, rounds)
            if long.verify_balances(now=NOW + 10 * rounds):
                raise SystemExit(f"{name}: balances do not follow from the ledger")
        per_s[name] = round(COMMITS / long_s, 1)
        short_per_s[name] = round(COMMITS / short_s, 1)
        ratios[name] = round(long_s / short_s, 3)
        print(
            f"{name}: {short_per_s[name]:.0f} commits/s with {SHORT:,} entries,"
            f" {per_s[name]:.0f} with {long_entries:,}: {ratios[name]:.2f} times as long",
            flush=True,
        )
    figures = {
        "commits_per_s": per_s,
        "commits_per_s_short": short_per_s,
        "growth_ratio": max(ratios.values()),
        "growth_ratio_by_database": ratios,
        "entries": long_entries,
        "entries_short": SHORT,
        "rounds": rounds,
        "budgets": len(BUDGETS),
    }
    print_line("ledger", watch, figures)


def compare(line: dict[str, Any]) -> tuple[Compared, ...]:
    """The rows of the results file, from the printed line."""
    rates = [
        Compared(f"{name}, commits a second", "", f"{rate:.0f}")
        for name, rate in line["commits_per_s"].items()
    ]
    ratio = float(line["growth_ratio"])
    wanted = f"≤ {WANTED_RATIO}"
    what = f"{line['entries']:,} entries against {line['entries_short']:,}"
    return (*rates, Compared(what, "", f"{ratio:.2f} ×", wanted, ratio <= WANTED_RATIO))


if __name__ == "__main__":
    main()
