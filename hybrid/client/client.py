"""The REST API as methods."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote as quoted

import httpx
import tenacity
from pydantic import ValidationError

from hybrid.client import answers as said
from hybrid.client.errors import Problem, Unreachable, WrongBytes
from hybrid.client.wire import ANSWER_S, CONNECT_S, TRIES, Wire, passes

A = TypeVar("A", bound=said.Answer)

PIECE_BYTES = 1 << 18
TRANSFER_S = 120.0
"""Of silence while bytes travel."""
_LONG = httpx.Timeout(TRANSFER_S, connect=CONNECT_S)
"""For answers that are worked out: plans of a long queue, a replayed ledger."""


def _nobody(_count: int) -> None:
    """Who is told of bytes when nobody asked."""


class HybridClient:
    """A typed client of one server. Threads may share it.

    Every method raises :class:`~hybrid.client.errors.Problem` when the server refuses and
    :class:`~hybrid.client.errors.Unreachable` when nobody answers. What may safely be asked twice
    is asked again a few times before that.
    """

    def __init__(self, url: str, token: str | None = None, *, ca_file: Path | None = None) -> None:
        self.wire = Wire(url, token, ca_file=ca_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where the server is."""
        return self.wire.url

    def close(self) -> None:
        """Drop the connections."""
        self.wire.close()

    # --- jobs ---------------------------------------------------------------------------------

    def submit(self, spec: Mapping[str, Any], *, key: str | None = None) -> tuple[said.Job, bool]:
        """Submit a job; True when ``key`` stood for it already. Without a key one is drawn, so
        that a repeated request is still one job."""
        headers = {"Idempotency-Key": key or f"client-{secrets.token_hex(16)}"}
        answer = self.wire.ask("POST", "/v1/jobs", again=True, json=spec, headers=headers)
        replayed = key is not None and answer.headers.get("idempotency-replayed") == "true"
        return self._read(said.Job, answer), replayed

    def quote(self, spec: Mapping[str, Any]) -> said.Quote:
        """Where, when and at what cost a job would run; no side effects."""
        return self._ask(said.Quote, "POST", "/v1/quote", again=True, json=spec)

    def jobs(
        self, *, limit: int = 50, cursor: str | None = None, **filters: str | Sequence[str] | None
    ) -> said.JobPage:
        """A page of jobs, newest first. Filters: ``state`` (several), ``team``, ``user``,
        ``priority``, ``name``."""
        given = {name: value for name, value in filters.items() if value}
        params: dict[str, Any] = {"limit": limit, **given}
        if cursor is not None:
            params["cursor"] = cursor
        return self._ask(said.JobPage, "GET", "/v1/jobs", params=params)

    def job(self, job_id: str) -> said.Job:
        """One job, whole."""
        return self._ask(said.Job, "GET", _path("jobs", job_id))

    def cancel(self, job_id: str) -> said.Job:
        """Cancel a job; twice is as once."""
        return self._ask(said.Job, "POST", _path("jobs", job_id) + ":cancel", again=True)

    def timeline(self, job_id: str) -> said.Timeline:
        """What happened to a job, all of it."""
        page = self._ask(said.Timeline, "GET", _path("jobs", job_id) + "/timeline")
        events = list(page.events)
        while page.next_after is not None:
            params = {"after": page.next_after}
            page = self._ask(
                said.Timeline, "GET", f"{_path('jobs', job_id)}/timeline", params=params
            )
            events += page.events
        return page.model_copy(update={"events": tuple(events)})

    def explain(self, job_id: str, where: str | None = None) -> said.Explanation:
        """Why a job is where it is, or why not in a pool, a machine type or an offer."""
        params = {} if where is None else {"where": where}
        path = _path("jobs", job_id) + "/explain"
        return self._ask(said.Explanation, "GET", path, params=params)

    # --- the place ----------------------------------------------------------------------------

    def nodes(self) -> said.NodeList:
        """All nodes that are not gone."""
        return self._ask(said.NodeList, "GET", "/v1/nodes")

    def cordon(self, node_id: str, why: str = "") -> said.Node:
        """Let nothing else start on a node."""
        path = _path("nodes", node_id) + ":cordon"
        return self._ask(said.Node, "POST", path, again=True, json={"why": why})

    def drain(self, target: str, within_s: float, why: str = "") -> said.Drain:
        """Empty a node, or an owned pool, in time."""
        body = {"within_s": within_s, "why": why}
        return self._ask(said.Drain, "PUT", _path("drains", target), again=True, json=body)

    def drained(self, target: str) -> said.Drain:
        """How far it has been emptied."""
        return self._ask(said.Drain, "GET", _path("drains", target))

    def undrain(self, target: str) -> said.Drain:
        """Let it take new runs again."""
        return self._ask(said.Drain, "DELETE", _path("drains", target), again=True)

    def uncordon(self, node_id: str) -> said.Node:
        """Let a node take new runs again."""
        return self._ask(said.Node, "POST", _path("nodes", node_id) + ":uncordon", again=True)

    def pools(self) -> said.PoolList:
        """All pools."""
        return self._ask(said.PoolList, "GET", "/v1/pools")

    def pool(self, name: str) -> said.Pool:
        """One pool."""
        return self._ask(said.Pool, "GET", _path("pools", name))

    def apply_pool(
        self, spec: Mapping[str, Any], *, over: int | None = None
    ) -> tuple[said.Pool, bool]:
        """Make a pool be as the document says; True if it is new. ``over``: only over this
        version (0: only if there is none)."""
        answer = self.wire.ask(
            "PUT",
            _path("pools", str(spec.get("name", ""))),
            again=over is None,
            json=spec,
            headers=_if_match(over),
        )
        return self._read(said.Pool, answer), answer.status_code == httpx.codes.CREATED

    def remove_pool(self, name: str) -> None:
        """Remove a pool that nothing is in."""
        self.wire.ask("DELETE", _path("pools", name))

    def offers(self, pool: str | None = None) -> said.OfferList:
        """What could be had from the clouds."""
        params = {} if pool is None else {"pool": pool}
        return self._ask(said.OfferList, "GET", "/v1/offers", params=params)

    def claims(self, *, state: Sequence[str] = (), limit: int = 200) -> said.ClaimList:
        """Cloud machines asked for, newest first."""
        params: dict[str, Any] = {"limit": limit, "state": list(state)}
        return self._ask(said.ClaimList, "GET", "/v1/claims", params=params)

    def budgets(self) -> said.BudgetList:
        """Budgets and what is left of them."""
        return self._ask(said.BudgetList, "GET", "/v1/budgets")

    def claim_ledger(self, claim_id: str) -> said.ClaimLedger:
        """What was held, charged and corrected for one claim."""
        return self._ask(said.ClaimLedger, "GET", _path("ledger", claim_id))

    def verify_ledger(self) -> said.LedgerCheck:
        """Every balance against a replay of the whole ledger."""
        return self._ask(said.LedgerCheck, "POST", "/v1/ledger:verify", again=True, timeout=_LONG)

    def compare_bill(self, bill: Mapping[str, Any], *, settle: bool = False) -> said.BillComparison:
        """A cloud's bill against the ledger; ``settle``: write down the differences."""
        verb = "import" if settle else "compare"
        path = f"/v1/ledger:{verb}-bill"
        # the same bill again adds nothing: it may be asked for twice
        return self._ask(said.BillComparison, "POST", path, again=True, json=bill, timeout=_LONG)

    def usage(self, since: datetime | None = None) -> said.Usage:
        """What each team has used and spent, in the last 30 days or since an instant."""
        params = {} if since is None else {"since": since.isoformat()}
        return self._ask(said.Usage, "GET", "/v1/usage", params=params)

    # --- policy, tokens -----------------------------------------------------------------------

    def policy(self) -> said.Policy:
        """The policy in force."""
        return self._ask(said.Policy, "GET", "/v1/policy")

    def check_policy(self, document: str) -> said.PolicyCheck:
        """What putting a policy in force would change."""
        body = {"document": document}
        return self._ask(said.PolicyCheck, "POST", "/v1/policy:check", again=True, json=body)

    def diff_policy(self, document: str) -> said.PolicyTrial:
        """What a policy would decide for the jobs that are there now; nothing is acted upon."""
        body = {"document": document}
        return self._ask(
            said.PolicyTrial, "POST", "/v1/policy:diff", again=True, json=body, timeout=_LONG
        )

    def policy_history(self, *, limit: int = 50, before: int | None = None) -> said.PolicyHistory:
        """Who put what in force, when and why; newest first."""
        params: dict[str, Any] = {"limit": limit}
        if before is not None:
            params["before"] = before
        return self._ask(said.PolicyHistory, "GET", "/v1/policy/versions", params=params)

    def policy_version(self, version: int) -> said.Policy:
        """One version of the policy, in force or not."""
        return self._ask(said.Policy, "GET", f"/v1/policy/versions/{version}")

    def roll_policy_back(self, to: int, *, why: str = "", over: int | None = None) -> said.Policy:
        """Put an earlier version in force again; ``over``: only over this version."""
        body = {"version": to, "why": why}
        return self._ask(
            said.Policy, "POST", "/v1/policy:rollback", json=body, headers=_if_match(over)
        )

    def apply_policy(self, document: str, *, why: str = "", over: int | None = None) -> said.Policy:
        """Put a policy in force; ``over``: only over this version."""
        body = {"document": document, "why": why}
        return self._ask(said.Policy, "PUT", "/v1/policy", json=body, headers=_if_match(over))

    def create_token(self, request: Mapping[str, Any]) -> said.NewToken:
        """Make a token."""
        return self._ask(said.NewToken, "POST", "/v1/tokens", json=request)

    def tokens(self) -> said.TokenList:
        """All tokens."""
        return self._ask(said.TokenList, "GET", "/v1/tokens")

    def revoke_token(self, token_id: str) -> None:
        """End a token now; twice is as once."""
        self.wire.ask("DELETE", _path("tokens", token_id), again=True)

    def who_am_i(self) -> said.WhoAmI:
        """Whose token this is."""
        return self._ask(said.WhoAmI, "GET", "/v1/whoami")

    # --- the server itself --------------------------------------------------------------------

    def ready(self) -> said.Readiness:
        """Whether the server can do its work; it says so with a 503 when it cannot."""
        try:
            answer = self.wire.ask("GET", "/readyz", again=False)
        except Problem as problem:
            if problem.status != httpx.codes.SERVICE_UNAVAILABLE:
                raise
            return said.Readiness(ready=False, store=problem.detail, loop="unknown")
        return self._read(said.Readiness, answer)

    def openapi(self) -> dict[str, Any]:
        """The API's own description."""
        document: dict[str, Any] = self.wire.ask("GET", "/openapi.json").json()
        return document

    # --- artifacts ----------------------------------------------------------------------------

    def upload(
        self,
        digest: str,
        source: Path,
        *,
        team: str | None = None,
        sent: Callable[[int], None] = _nobody,
    ) -> said.Stored:
        """Bring a file to the artifact store under its digest. ``sent`` is told of every piece's
        bytes, and of minus what had been sent when it begins again."""
        size = source.stat().st_size

        def once() -> httpx.Response:
            done = 0

            def pieces() -> Iterator[bytes]:
                nonlocal done
                with source.open("rb") as file:
                    while piece := file.read(PIECE_BYTES):
                        yield piece
                        done += len(piece)
                        sent(len(piece))

            try:
                return self.wire.ask(
                    "PUT",
                    _path("artifacts", digest),
                    params={} if team is None else {"team": team},
                    content=pieces(),
                    headers={
                        "Content-Type": "application/octet-stream",
                        "Content-Length": str(size),
                    },
                    timeout=httpx.Timeout(TRANSFER_S, connect=CONNECT_S),
                )
            except (Problem, Unreachable):
                sent(-done)
                raise

        return self._read(said.Stored, _persistently()(once))

    def download(
        self, digest: str, target: Path, *, got: Callable[[int, int], None] = lambda _n, _of: None
    ) -> int:
        """Bring an artifact into ``target``, which appears whole or not at all; its bytes.

        ``got`` is told the bytes so far and of how many (0: unknown). Raises WrongBytes.
        """
        draft = target.with_name(f".{target.name}.part")

        def once() -> int:
            sha256, size = hashlib.sha256(), 0
            timeout = httpx.Timeout(TRANSFER_S, connect=CONNECT_S)
            with (
                self.wire.stream("GET", _path("artifacts", digest), timeout=timeout) as answer,
                draft.open("wb") as file,
            ):
                total = int(answer.headers.get("content-length", 0))
                for piece in answer.iter_bytes(PIECE_BYTES):
                    sha256.update(piece)
                    size += len(piece)
                    file.write(piece)
                    got(size, total)
            if f"sha256:{sha256.hexdigest()}" != digest:
                raise WrongBytes(f"{digest} arrived as sha256:{sha256.hexdigest()}")
            return size

        try:
            size = _persistently()(once)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        return size

    # --- how ----------------------------------------------------------------------------------

    def _ask(self, kind: type[A], method: str, path: str, **arguments: Any) -> A:
        return self._read(kind, self.wire.ask(method, path, **arguments))

    def _read(self, kind: type[A], answer: httpx.Response) -> A:
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError as problem:
            where = ".".join(str(part) for part in problem.errors()[0]["loc"]) or "all of it"
            why = f"what answers there is no hybrid server of this version ({where})"
            raise Unreachable(self.url, why) from problem


def _persistently() -> tenacity.Retrying:
    """For transfers: a whole transfer is one try."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(passes),
        stop=tenacity.stop_after_attempt(TRIES) | tenacity.stop_after_delay(10 * ANSWER_S),
        wait=tenacity.wait_random_exponential(multiplier=0.3, max=5.0),
        reraise=True,
    )


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


def _path(kind: str, name: str) -> str:
    return f"/v1/{kind}/{quoted(name, safe=':')}"
