"""Configurations of fleets of any shape, for tests of what is planned for them."""

from collections.abc import Mapping, Sequence

from collector.config import Config, read_config

ONLY_WINDOWS = "measure: {throughput: {around_the_clock: 0}}"
DEMO_MEASURE = "measure: {throughput: {duration: 1s, omit: 0s, margin: 400ms, slot: 2s, around_the_clock: 0}}"
DEMO_WINDOWS = {"offpeak": "12:30:05-12:31:45", "peak": "12:31:45-12:33:25"}  # 100 s each


def fleet(
    racks: Sequence[int] | Mapping[str, Sequence[int]],
    *,
    lanes: Sequence[str] = ("rail0",),
    windows: Mapping[str, str] | Mapping[str, Mapping[str, str]] | None = None,
    zones: Mapping[str, str] | None = None,
    client_only: Sequence[str] = (),
    rest: str = ONLY_WINDOWS,
) -> Config:
    """A fleet with so many hosts in each rack; ``racks`` of the site ``a``, or by site.

    Args:
        racks: hosts per rack. Nodes are called ``<site><rack>-<host>``, racks ``<site><rack>``, from 1 on.
        lanes: each node has one NIC in each.
        windows: ``{"peak": …, "offpeak": …}`` of all sites, or by site; the defaults without it.
        zones: time zone by site; UTC without it.
        client_only: nodes that nobody can connect to.
        rest: further YAML; without it tests are planned in the windows only.
    """
    sites = dict(racks) if isinstance(racks, Mapping) else {"a": racks}
    lines = ["sites:"]
    for site in sites:
        of_site = (windows or {}).get(site, windows or {})
        shown = (
            ", ".join(f'{kind}: ["{text}"]' for kind, text in of_site.items()) if isinstance(of_site, Mapping) else ""
        )
        lines.append(f"  - {{name: {site}, time_zone: {(zones or {}).get(site, 'UTC')}, windows: {{{shown}}}}}")
    lines.append("nodes:")
    for site_number, (site, sizes) in enumerate(sites.items()):
        for rack, size in enumerate(sizes, 1):
            for host in range(1, size + 1):
                name = f"{site}{rack}-{host}"
                only = ", client_only: true" if name in client_only else ""
                endpoints = ", ".join(
                    f"{{nic: eth{index}, address: '2001:db8:{site_number}:{index}:{rack}::{host}', lane: {lane}{only}}}"
                    for index, lane in enumerate(lanes)
                )
                lines.append(f"  - {{name: {name}, site: {site}, rack: {site}{rack}, endpoints: [{endpoints}]}}")
    return read_config("\n".join([*lines, rest]), "fleet")


def demo_fleet(racks: Sequence[int] = (2, 2)) -> Config:
    """The demo's: tests of 1 s in slots of 2 s, a night and an evening of 100 s each."""
    return fleet(racks, windows=DEMO_WINDOWS, rest=DEMO_MEASURE)
