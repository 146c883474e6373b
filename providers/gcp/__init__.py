"""Google Compute Engine as capacity.

============================  ==================================================================
:mod:`.provider`              the CapacityProvider: lists, launches, ends
:mod:`.errors`                Compute Engine's codes → typed errors, in one table
:mod:`.rest`                  JSON calls with deadlines, under Google's own chain of credentials
:mod:`.operations`            waiting for a zone operation, and reading what it says
:mod:`.requests`              a claim → the complete insert request, as stored JSON
:mod:`.names`                 instance names, labels, and how a machine type is written
:mod:`.machines`              what instances and operations say → Machine
:mod:`.machine_facts`         a machine type's GPUs, links, processors and memory
:mod:`.prices`                list and spot prices, put together from the billing catalogue
:mod:`.quotas`                GPU quotas of the region and the project, less what runs
============================  ==================================================================

google-auth is imported when a provider is made, not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from providers.gcp.provider import GcpProvider


def create(
    *,
    name: str,
    region: str,
    installation: str,
    endpoint_url: str | None = None,
    project: str | None = None,
    cache_dir: str | None = None,
) -> GcpProvider:
    """The provider of one project and region, by Google's own chain of credentials.

    ``project`` is that of the credentials if omitted; ``cache_dir`` is where prices are kept.
    Raises ValueError when there is no project.
    """
    from providers.gcp.provider import GcpProvider

    return GcpProvider(
        name=name,
        region=region,
        installation=installation,
        endpoint_url=endpoint_url,
        project=project,
        cache_dir=Path(cache_dir) if cache_dir else None,
    )
