"""The CapacityProvider of one Google Cloud project in one region."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hybrid.domain.claim import Claim
from hybrid.domain.ids import MachineId, PoolName
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Quota, offer_id
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import BootInfo, Leftover, Machine, Notice, Offers, Permission
from hybrid.ports.errors import Gone, InvalidRequest, OutcomeUnknown
from providers.gcp import leftovers, machine_facts, machines, quotas, requests
from providers.gcp.errors import EXISTS, Scopes
from providers.gcp.names import LABEL_INSTALLATION, exact_label, name_prefix, read_type
from providers.gcp.operations import settled
from providers.gcp.permissions import PERMISSIONS
from providers.gcp.prices import Prices
from providers.gcp.rest import COMPUTE, RESOURCES, Rest, translated
from providers.kept import default_cache_dir
from providers.offering import MachineFacts, Region, combinations, offers

CONSOLE_LIMIT: Final = 65_536
LAUNCH_S: Final = 45.0
"""For an insert to be done or refused; past it the outcome is unknown and the request repeated."""
RECENT_S: Final = 3_600.0
"""For how long a machine that has ended is still listed."""
TYPES_LAST_S: Final = 86_400.0
PAGE: Final = 500

_OPERATION_FIELDS: Final = (
    "nextPageToken,items/*/warning/code,"
    "items/*/operations(name,zone,operationType,targetId,targetLink,status,insertTime,endTime,error)"
)
# user data are not asked for: they are kilobytes of each machine at every listing
_LISTING_FIELDS: Final = (
    "nextPageToken,items/*/warning/code,items/*/instances(id,name,zone,status,machineType,"
    "creationTimestamp,labels,guestAccelerators,networkInterfaces/networkIP,"
    "scheduling(provisioningModel,preemptible))"
)

_TYPE_FIELDS: Final = (
    "nextPageToken,items/*/warning/code,"
    "items/*/machineTypes(name,zone,guestCpus,memoryMb,accelerators,architecture)"
)
_INCOMPLETE: Final = frozenset({"UNREACHABLE", "PARTIAL_SUCCESS"})


class GcpProvider:
    """Launches, lists and ends Compute Engine instances. Safe to call from several threads."""

    def __init__(
        self,
        *,
        name: str,
        region: str,
        installation: str,
        endpoint_url: str | None = None,
        project: str | None = None,
        cache_dir: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError without credentials, without a project, or when the installation cannot
        be a label."""
        self._name, self._region, self._now = name, region, now
        self._installation = exact_label("installation", installation)
        self._scopes = Scopes(provider=name, region=region)
        self._rest = Rest(self._scopes, endpoint_url)
        found = project or self._rest.project
        if not found:
            raise ValueError("no project: set options.project, or credentials that name one")
        self._project = found
        self._prices = Prices(
            self._rest,
            region=region,
            scopes=self._scopes,
            cache_dir=cache_dir or default_cache_dir(),
            now=now,
        )
        self._lock = threading.Lock()
        self._types: dict[str, tuple[float, dict[str, Mapping[str, Any]]]] = {}
        self._where: dict[MachineId, tuple[str, str]] = {}
        self._made: dict[MachineId, tuple[str, str, float]] = {}
        self._deeds: tuple[machines.Deed, ...] = ()

    @property
    def name(self) -> str:
        """What pools call it."""
        return self._name

    @property
    def token_validity_s(self) -> float:
        """Compute Engine keeps a requestId for at least an hour; ten minutes less leave time for a
        call that is on its way. While the instance is there its name forbids a second one."""
        return 3_000.0

    def offers(self, pools: Sequence[BurstPool]) -> Offers:
        """What the pools could get now, priced. What a pool asks for gangs that Compute Engine does
        not have is told with its offers, all of them ignored."""
        odd = [pool for pool in pools if pool.gangs.efa or pool.gangs.placement_group]
        if odd:
            rest = self.offers([pool for pool in pools if pool not in odd])
            return Offers(rest.usable, (*rest.ignored, *_ignored(odd)))
        written = sorted({each for pool in pools for each in pool.machine_types})
        if not written:
            return Offers(())
        sold = {each: self._listed(read_type(each).base) for each in written}
        facts: dict[str, MachineFacts] = {}
        needs: dict[str, tuple[float, float, str, int]] = {}
        for each, rows in sold.items():
            row = next(iter(rows.values()), None)
            known = machine_facts.facts(each, row) if row is not None else None
            if row is not None and known is not None:
                facts[each] = known
                accelerator, count = machine_facts.gpus(each, row)
                needs[each] = (known.cpus, known.memory_gib, accelerator, count)
        listed = self._prices.of(needs, Market.ON_DEMAND)
        spot = self._prices.of(needs, Market.SPOT)
        pairs = frozenset((each, zone) for each, rows in sold.items() for zone in rows)
        region = Region(
            cloud="Compute Engine",
            facts=facts,
            sold=pairs,
            on_demand={pair: listed[pair[0]] for pair in pairs if pair[0] in listed},
            spot={pair: spot[pair[0]] for pair in pairs if pair[0] in spot},
            quota_family=lambda each: quotas.metric(needs[each][2]) if each in needs else "",
            quotas=self._quotas(needs),
        )
        return offers(pools, region)

    def list_machines(self) -> tuple[Machine, ...]:
        """Every instance labelled with this installation, and those that ended in the last hour."""
        here = f"{self._region}-"
        with translated(self._scopes):
            rows = [
                row
                for page in self._pages(
                    "instances",
                    {
                        "filter": f'labels.{LABEL_INSTALLATION} = "{self._installation}"',
                        "fields": _LISTING_FIELDS,
                    },
                )
                for row in _items(page, "instances", here)
            ]
            deeds = tuple(self._recent_deeds(here))
        try:
            found = [machines.machine(row) for row in rows]
        except (KeyError, ValueError) as error:
            raise OutcomeUnknown(f"an instance that cannot be read: {error!r}") from error
        places = {
            MachineId(str(row["id"])): (machines.last_part(row["zone"]), str(row["name"]))
            for row in rows
        }
        since = self._now() - RECENT_S
        with self._lock:
            # lists lag: what was just made, here or by another process, is known by its operation
            self._made = {id_: made for id_, made in self._made.items() if made[2] > since}
            self._where = {each.machine_id: (each.zone, each.name) for each in deeds} | places
            self._deeds = deeds
        return machines.with_ends(found, deeds, self._installation)

    def prepare(self, claim: Claim, pool: BurstPool, boot: BootInfo) -> str:
        """The complete insert request of a claim, as JSON."""
        return requests.prepare(claim, pool, boot)

    def launch(self, request: str, join_token: str) -> Machine:
        """Insert the instance of a prepared request, and wait until it is made or refused."""
        order = requests.read(request, join_token)
        scopes = self._launch_scopes(order)
        instances = self._path(f"zones/{order.zone}/instances")
        try:
            with translated(scopes):
                operation = self._rest.write("POST", instances, order.params, order.body)
            done = settled(
                self._rest, self._project, order.zone, operation, scopes, deadline_s=LAUNCH_S
            )
        except InvalidRequest as refusal:
            if refusal.code not in EXISTS:
                raise
            # past its requestId's life the name still tells: the instance may be this claim's
            found = self._existing(order)
            if found is None:
                raise
            return found
        made = machines.launched(order, done)
        self._remember(made, str(order.body["name"]))
        return made

    def terminate(self, machine_id: MachineId) -> None:
        """Delete an instance and its boot disk; one that is not there any more is ended already."""
        place = self._place(machine_id)
        if place is None:
            return
        zone, name = place
        try:
            with translated(self._scopes):
                self._rest.write("DELETE", self._path(f"zones/{zone}/instances/{name}"))
        except Gone:
            return

    def leftovers(self) -> tuple[Leftover, ...]:
        """Disks of ours that no instance uses."""
        query = {
            "filter": f'name eq "{name_prefix(self._installation)}.*"',
            "fields": leftovers.FIELDS,
        }
        with translated(self._scopes):
            rows = [
                row
                for page in self._pages("disks", query)
                for row in _items(page, "disks", f"{self._region}-")
            ]
        return leftovers.unused(rows, self._installation, self._now())

    def remove(self, leftover: Leftover) -> None:
        """Delete it."""
        with translated(self._scopes):
            path = self._path(f"zones/{leftover.place}/disks/{leftover.id}")
            self._rest.write("DELETE", path)

    def notices(self) -> tuple[Notice, ...]:
        """The preemptions that the last listing showed; machines hear of their own besides."""
        with self._lock:
            return machines.notices(self._deeds)

    def console(self, machine_id: MachineId) -> str:
        """The instance's serial console, the last 64 KiB."""
        place = self._place(machine_id)
        if place is None:
            raise Gone(f"there is no instance {machine_id}")
        zone, name = place
        with translated(self._scopes):
            answer = self._rest.read(
                COMPUTE, self._path(f"zones/{zone}/instances/{name}/serialPort"), {"port": 1}
            )
        return str(answer.get("contents") or "")[-CONSOLE_LIMIT:]

    def permissions(self, pools: Sequence[BurstPool]) -> tuple[Permission, ...]:  # noqa: ARG002
        """What the project grants these credentials; the same for all pools."""
        with translated(self._scopes):
            answer = self._rest.write(
                "POST",
                f"/v1/projects/{self._project}:testIamPermissions",
                body={"permissions": sorted(PERMISSIONS)},
                service=RESOURCES,
                read_s=20.0,
            )
        granted = set(answer.get("permissions") or ())
        return tuple(
            Permission(name=name, what_for=what_for, granted=name in granted)
            for name, what_for in PERMISSIONS.items()
        )

    # -- inside -----------------------------------------------------------------------------

    def _path(self, rest: str) -> str:
        return f"/compute/v1/projects/{self._project}/{rest}"

    def _pages(self, collection: str, params: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Every page of an aggregated list. Raises Refusal; OutcomeUnknown for one in part."""
        asked = {"maxResults": PAGE, "returnPartialSuccess": "false", **params}
        while True:
            page = self._rest.read(COMPUTE, self._path(f"aggregated/{collection}"), asked)
            yield page
            token = page.get("nextPageToken")
            if not token:
                return
            asked["pageToken"] = token

    def _recent_deeds(self, here: str) -> Iterator[machines.Deed]:
        since = self._now() - RECENT_S
        names = f".*/instances/{name_prefix(self._installation)}.*"
        for page in self._pages(
            "operations",
            {
                "filter": f'targetLink eq "{names}"',
                "orderBy": "creationTimestamp desc",
                "fields": _OPERATION_FIELDS,
            },
        ):
            oldest = None
            for row in _items(page, "operations", here):
                found = machines.deed(row)
                if found is not None:
                    oldest = found.began_at if oldest is None else min(oldest, found.began_at)
                    yield found
            if oldest is not None and oldest < since:
                return

    def _listed(self, base: str) -> dict[str, Mapping[str, Any]]:
        """Zone → the listing of a machine type there; kept for a day."""
        now = self._now()
        with self._lock:
            kept = self._types.get(base)
        if kept is not None and now - kept[0] < TYPES_LAST_S:
            return kept[1]
        with translated(self._scopes):
            rows = {
                str(row["zone"]).rsplit("/", 1)[-1]: row
                for page in self._pages(
                    "machineTypes", {"filter": f'name = "{base}"', "fields": _TYPE_FIELDS}
                )
                for row in _items(page, "machineTypes", f"{self._region}-")
            }
        with self._lock:
            self._types[base] = (now, rows)
        return rows

    def _quotas(
        self, needs: Mapping[str, tuple[float, float, str, int]]
    ) -> dict[tuple[str, Market], Quota]:
        at = self._now()
        with translated(self._scopes):
            region = self._rest.read(
                COMPUTE, self._path(f"regions/{self._region}"), {"fields": "quotas"}
            )
            project = self._rest.read(
                COMPUTE, f"/compute/v1/projects/{self._project}", {"fields": "quotas"}
            )
        uses = quotas.read(region.get("quotas") or ())
        everywhere = quotas.read(project.get("quotas") or ())
        return quotas.tightest(needs, uses, everywhere, region=self._region, at=at)

    def _launch_scopes(self, order: requests.Order) -> Scopes:
        return Scopes(
            provider=self._name,
            region=self._region,
            zone=order.zone,
            offer=order.offer,
            family=order.family,
            market=str(order.market),
        )

    def _existing(self, order: requests.Order) -> Machine | None:
        """The instance of the claim's name, if it bears the claim's token."""
        path = self._path(f"zones/{order.zone}/instances/{order.body['name']}")
        try:
            with translated(self._scopes):
                row = self._rest.read(COMPUTE, path)
        except Gone as error:
            # it was there a moment ago: it has just ended, or the list lags
            raise OutcomeUnknown(str(error)) from error
        found = machines.machine(row)
        if found.token != order.token:
            return None
        self._remember(found, str(row["name"]))
        return found

    def _remember(self, made: Machine, name: str) -> None:
        with self._lock:
            self._made[made.id] = (made.zone, name, self._now())

    def _place(self, machine_id: MachineId) -> tuple[str, str] | None:
        """Zone and name of an instance; asked of the cloud when no listing has shown it."""
        with self._lock:
            place = self._where.get(machine_id)
            made = self._made.get(machine_id)
        if place is not None:
            return place
        if made is not None:
            return made[:2]
        if not machine_id.isdigit():
            return None  # no instance of ours has such an id
        with translated(self._scopes):
            for page in self._pages(
                "instances",
                {
                    "filter": f"id = {machine_id}",
                    "fields": "nextPageToken,items/*/warning/code,"
                    f"items/*/instances(id,name,zone,labels/{LABEL_INSTALLATION})",
                },
            ):
                for row in _items(page, "instances", ""):
                    if (row.get("labels") or {}).get(LABEL_INSTALLATION) == self._installation:
                        return machines.last_part(row["zone"]), str(row["name"])
        return None


def _ignored(pools: Sequence[BurstPool]) -> Iterator[tuple[str, str]]:
    why = "its pool asks for gangs what Compute Engine does not have: `gangs` is for EC2"
    for pool in pools:
        for zone, machine_type, market in combinations(pool):
            yield str(offer_id(PoolName(pool.name), zone, machine_type, market)), why


def _items(page: Mapping[str, Any], kind: str, zone_prefix: str) -> Iterator[Mapping[str, Any]]:
    """The rows of one page in the zones that begin so. Raises OutcomeUnknown when one of them could
    not be reached: a listing is complete or an error."""
    for scope, held in (page.get("items") or {}).items():
        zone = str(scope).removeprefix("zones/")
        if not zone.startswith(zone_prefix):
            continue
        code = (held.get("warning") or {}).get("code", "")
        if code in _INCOMPLETE:
            raise OutcomeUnknown(f"{kind} of {scope} could not be listed: {code}")
        yield from held.get(kind) or ()
