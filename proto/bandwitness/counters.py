"""What counters mean: one vocabulary over all drivers, with widths. Pure, standard library only.

Records keep the names that kernel and driver use. The agent takes from here which of a driver's hundreds of
statistics it records (the allow-list), the collector and the live table what they mean. Names were read in the
kernel's drivers (drivers/net/ethernet/{mellanox,broadcom,intel,amazon}, drivers/net/virtio_net.c, veth.c),
drivers/infiniband and Documentation/ABI/stable/sysfs-class-infiniband; what nobody could try on the hardware is only
as good as those texts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

# Their speed is a number and no limit (drivers/net/veth.c, tun.c): traffic passes at the speed of memory.
BOUNDLESS = frozenset({"veth", "tun", "dummy", "bridge", "bonding", "802.1Q VLAN Support", "macvlan", "virtio_net"})
WORD_BYTES = 4  # port_xmit_data and port_rcv_data count octets divided by 4, whatever the number of lanes


@dataclass(frozen=True, slots=True)
class Meaning:
    """One counter in words of our own.

    ``scale`` times a difference gives ``unit``. ``bits`` is how wide it is: at its top a counter begins anew, unless
    it ``saturates`` and stays there. A ``gauge`` is a value and not a count. ``error``: a rise is trouble.
    """

    name: str
    unit: str = "packets"
    scale: int = 1
    bits: int = 64
    saturates: bool = False
    gauge: bool = False
    error: bool = False
    priority: int | None = None  # of a counter by priority; None: all together, or not by priority


def _error(name: str, unit: str = "packets", **more: int) -> Meaning:
    return Meaning(name, unit, error=True, bits=more.get("bits", 64), saturates=bool(more.get("saturates", 0)))


_MLX5, _BNXT, _ICE, _I40E, _IXGBE = "mlx5_core", "bnxt_en", "ice", "i40e", "ixgbe"

# Our meaning -> driver -> its name, a pattern that must match whole; (?P<p>.) is the priority.
_ETHTOOL: Mapping[Meaning, Mapping[str, str]] = {
    Meaning("wire_receive_bytes", "bytes"): {
        _MLX5: "rx_bytes_phy", _BNXT: "rx_bytes", _ICE: r"rx_bytes\.nic", _I40E: r"port\.rx_bytes",
        _IXGBE: "rx_bytes_nic",
    },
    Meaning("wire_transmit_bytes", "bytes"): {
        _MLX5: "tx_bytes_phy", _BNXT: "tx_bytes", _ICE: r"tx_bytes\.nic", _I40E: r"port\.tx_bytes",
        _IXGBE: "tx_bytes_nic",
    },
    Meaning("rdma_receive_bytes", "bytes"): {_MLX5: "rx_vport_rdma_(?:uni|multi)cast_bytes"},
    Meaning("rdma_transmit_bytes", "bytes"): {_MLX5: "tx_vport_rdma_(?:uni|multi)cast_bytes"},
    _error("receive_discards"): {
        _MLX5: "rx_discards_phy", _BNXT: "rx_stat_discard|rx_total_(?:discard_pkts|ring_discards)",
        _ICE: r"rx_dropped\.nic", _I40E: r"port\.rx_dropped", _IXGBE: "rx_missed_errors",
        "virtio_net": r"rx_queue_\d+_drops|rx\d+_drops", "veth": r"rx_queue_\d+_drops",
    },
    _error("transmit_discards"): {
        _MLX5: "tx_discards_phy", _BNXT: "tx_stat_discard|tx_total_(?:discard_pkts|ring_discards)",
        _ICE: r"tx_dropped_link_down\.nic", _I40E: r"port\.tx_dropped_link_down",
    },
    _error("priority_discards"): {_MLX5: "rx_prio(?P<p>[0-7])_(?:discards|buf_discard|cong_discard)"},
    _error("out_of_buffer"): {
        _MLX5: "rx_out_of_buffer", _BNXT: "rx_total_oom_discards",
        _IXGBE: "rx_no_buffer_count|rx_no_dma_resources",
    },
    _error("crc_errors"): {
        _MLX5: "rx_crc_errors_phy", _BNXT: "rx_fcs_err_frames", _ICE: r"rx_crc_errors\.nic",
        _I40E: r"port\.rx_crc_errors", _IXGBE: "rx_crc_errors",
    },
    _error("symbol_errors", "symbols"): {
        _MLX5: "rx_symbol_err_phy", _ICE: r"illegal_bytes\.nic", _I40E: r"port\.illegal_bytes",
    },
    _error("pcs_symbol_errors", "symbols"): {_MLX5: "rx_pcs_symbol_err_phy", _BNXT: "rx_pcs_symbol_err"},
    Meaning("fec_corrected", "blocks"): {_MLX5: "rx_corrected_bits_phy", _BNXT: "rx_fec_corrected_blocks"},
    _error("fec_uncorrectable", "blocks"): {
        _MLX5: r"rx_err_lane_\d+_phy", _BNXT: "rx_fec_uncorrectable_blocks",
    },
    Meaning("receive_bits", "bits"): {_MLX5: "rx_bits_phy", _BNXT: "rx_bits"},
    Meaning("receive_pause_frames"): {
        _MLX5: "rx_prio(?P<p>[0-7])_pause|rx_global_pause", _BNXT: "rx_pause_frames|rx_pfc_ena_frames_pri(?P<p>[0-7])",
        _ICE: r"link_xoff_rx\.nic|rx_priority_(?P<p>[0-7])_xoff\.nic",
        _I40E: r"port\.link_xoff_rx|port\.rx_priority_(?P<p>[0-7])_xoff",
        _IXGBE: "rx_flow_control_xoff|rx_pb_(?P<p>[0-7])_pxoff",
    },
    Meaning("transmit_pause_frames"): {
        _MLX5: "tx_prio(?P<p>[0-7])_pause|tx_global_pause", _BNXT: "tx_pause_frames|tx_pfc_ena_frames_pri(?P<p>[0-7])",
        _ICE: r"link_xoff_tx\.nic|tx_priority_(?P<p>[0-7])_xoff\.nic",
        _I40E: r"port\.link_xoff_tx|port\.tx_priority_(?P<p>[0-7])_xoff",
        _IXGBE: "tx_flow_control_xoff|tx_pb_(?P<p>[0-7])_pxoff",
    },
    Meaning("receive_pause_us", "us"): {  # how long this port was not allowed to send
        _MLX5: "rx_prio(?P<p>[0-7])_pause_duration|rx_global_pause_duration",
        _BNXT: "pfc_pri(?P<p>[0-7])_rx_duration_us",
    },
    Meaning("transmit_pause_us", "us"): {  # how long this port stopped its neighbour
        _MLX5: "tx_prio(?P<p>[0-7])_pause_duration|tx_global_pause_duration",
        _BNXT: "pfc_pri(?P<p>[0-7])_tx_duration_us",
    },
    Meaning("receive_pause_transitions", "events"): {
        _MLX5: "rx_prio(?P<p>[0-7])_pause_transition|rx_global_pause_transition",
        _BNXT: "pfc_pri(?P<p>[0-7])_rx_transitions",
    },
    _error("pause_storm_warnings", "events"): {
        _MLX5: "tx_pause_storm_warning_events ?", _BNXT: "continuous_pause_events|continuous_roce_pause_events",
    },
    _error("pause_storm_errors", "events"): {_MLX5: "tx_pause_storm_error_events"},
    _error("link_down_events", "events"): {_MLX5: "link_down_events_phy", _BNXT: "link_down_events"},
    _error("link_faults", "events"): {
        _ICE: r"mac_(?:local|remote)_faults\.nic", _I40E: r"port\.mac_(?:local|remote)_faults",
    },
    Meaning("buffer_passed_threshold", "events"): {
        _MLX5: "rx_buffer_passed_thres_phy", _BNXT: "rx_buffer_passed_threshold",
    },
    Meaning("pci_stalled_write_percent", "percent", gauge=True): {_MLX5: "outbound_pci_stalled_wr"},
    _error("pci_buffer_overflow", "events"): {_MLX5: "outbound_pci_buffer_overflow"},
    _error("steering_missed"): {_MLX5: "rx_steer_missed_packets"},
    _error("allowance_bandwidth_in"): {"ena": "bw_in_allowance_exceeded"},
    _error("allowance_bandwidth_out"): {"ena": "bw_out_allowance_exceeded"},
    _error("allowance_packets"): {"ena": "pps_allowance_exceeded"},
    _error("allowance_connections"): {"ena": "conntrack_allowance_exceeded"},
    _error("allowance_link_local"): {"ena": "linklocal_allowance_exceeded"},
    _error("transmit_timeouts", "events"): {
        "ena": "tx_timeout", "virtio_net": r"tx_queue_\d+_tx_timeouts|tx\d+_tx_timeouts", _ICE: r"tx_timeout\.nic",
        _I40E: r"port\.tx_timeout", _IXGBE: "tx_timeout_count",
    },
}  # fmt: skip


def _pma(name: str, bits: int, unit: str = "events") -> Meaning:
    """A counter of the InfiniBand port management class: it stops at its top until somebody clears it."""
    return _error(name, unit, bits=bits, saturates=1)


def _queue(name: str, *, error: bool = True) -> Meaning:
    """A counter of mlx5's queue set: read as 32 bits, begins anew (drivers/infiniband/hw/mlx5/counters.c)."""
    return Meaning(name, "events", bits=32, error=error)


# /sys/class/infiniband/DEV/ports/N/counters. The data counters are 64 bits wide on all that is new and 32 on what is
# old; a value of exactly 2^32 - 1 twice running is an old one at its top.
_RDMA_PORT: Mapping[str, Meaning] = {
    "port_xmit_data": Meaning("rdma_transmit_bytes", "bytes", WORD_BYTES, 32, saturates=True),
    "port_rcv_data": Meaning("rdma_receive_bytes", "bytes", WORD_BYTES, 32, saturates=True),
    "port_xmit_data_64": Meaning("rdma_transmit_bytes", "bytes", WORD_BYTES),
    "port_rcv_data_64": Meaning("rdma_receive_bytes", "bytes", WORD_BYTES),
    "port_xmit_packets": Meaning("rdma_transmit_packets", bits=32, saturates=True),
    "port_rcv_packets": Meaning("rdma_receive_packets", bits=32, saturates=True),
    "port_xmit_wait": Meaning("rdma_transmit_wait", "ticks", bits=32, saturates=True),  # of a length nobody tells
    "port_xmit_discards": _pma("rdma_transmit_discards", 16, "packets"),
    "port_rcv_errors": _pma("rdma_receive_errors", 16, "packets"),
    "port_rcv_remote_physical_errors": _pma("rdma_remote_physical_errors", 16, "packets"),
    "port_rcv_switch_relay_errors": _pma("rdma_switch_relay_errors", 16, "packets"),
    "symbol_error": _pma("rdma_symbol_errors", 16),
    "link_error_recovery": _pma("rdma_link_recoveries", 8),
    "link_downed": _pma("rdma_link_downs", 8),
    "local_link_integrity_errors": _pma("rdma_link_integrity_errors", 4),
    "excessive_buffer_overrun_errors": _pma("rdma_buffer_overruns", 4),
    "VL15_dropped": _pma("rdma_management_dropped", 16, "packets"),
}
# hw_counters of mlx5_ib and bnxt_re. bnxt_re counts bytes, not words.
_RDMA_HARDWARE: Mapping[str, Meaning] = {
    "tx_bytes": Meaning("rdma_transmit_bytes", "bytes"),
    "rx_bytes": Meaning("rdma_receive_bytes", "bytes"),
    "np_ecn_marked_roce_packets": _queue("ecn_marked", error=False),
    "np_cnp_sent": _queue("cnp_sent", error=False),
    "rp_cnp_handled": _queue("cnp_handled", error=False),
    "rp_cnp_ignored": _queue("cnp_ignored"),
    "out_of_sequence": _queue("out_of_sequence"),
    "oos_drop_count": _queue("out_of_sequence"),
    "packet_seq_err": _queue("sequence_errors"),
    "seq_err_naks_rcvd": _queue("sequence_errors"),
    "implied_nak_seq_err": _queue("implied_sequence_errors"),
    "duplicate_request": _queue("duplicate_requests"),
    "dup_req": _queue("duplicate_requests"),
    "local_ack_timeout_err": _queue("ack_timeouts"),
    "to_retransmits": _queue("ack_timeouts"),
    "rnr_nak_retry_err": _queue("receiver_not_ready"),
    "rnr_naks_rcvd": _queue("receiver_not_ready"),
    "out_of_buffer": _queue("rdma_out_of_buffer"),
    "rx_out_of_buffer": _queue("rdma_out_of_buffer"),
    "req_transport_retries_exceeded": _queue("retries_exceeded"),
    "req_rnr_retries_exceeded": _queue("retries_exceeded"),
    "max_retry_exceeded": _queue("retries_exceeded"),
    "roce_adp_retrans": _queue("adaptive_retransmits"),
    "roce_adp_retrans_to": _queue("adaptive_retransmit_timeouts"),
    "roce_slow_restart": _queue("slow_restarts"),
    "roce_slow_restart_cnps": _queue("slow_restart_cnps", error=False),
    "roce_slow_restart_trans": _queue("slow_restart_transitions", error=False),
    "rx_icrc_encapsulated": _queue("icrc_errors"),
    "rx_roce_discards": _queue("rdma_receive_discards"),
    "rx_roce_errors": _queue("rdma_receive_errors"),
    "missing_resp": _queue("missing_responses"),
}
RDMA_PORT_COUNTERS = tuple(_RDMA_PORT)
RDMA_HARDWARE_COUNTERS = tuple(_RDMA_HARDWARE)

# rtnl_link_stats64 (include/uapi/linux/if_link.h) by the names of /sys/class/net/IF/statistics.
_NETDEV_COUNTS = {
    "rx_bytes": "bytes", "tx_bytes": "bytes", "rx_packets": "packets", "tx_packets": "packets",
    "multicast": "packets", "rx_compressed": "packets", "tx_compressed": "packets",
}  # fmt: skip
# Counted of packets that came to grief: fixed, since each is a label of a metric.
NETDEV_ERRORS = frozenset({
    "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "collisions", "rx_length_errors", "rx_over_errors",
    "rx_crc_errors", "rx_frame_errors", "rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors",
    "tx_fifo_errors", "tx_heartbeat_errors", "tx_window_errors", "rx_nohandler",
})  # fmt: skip

# Of the whole host: what is counted of trouble and of work. Columns are found by name, as kernels differ in them.
_HOST: Mapping[str, Meaning] = {
    "Tcp.OutSegs": Meaning("tcp_segments_sent", "segments"),
    "Tcp.RetransSegs": _error("tcp_segments_retransmitted", "segments"),
    "Tcp.InErrs": _error("tcp_receive_errors", "segments"),
    "Tcp.EstabResets": _error("tcp_connections_reset", "events"),
    "Udp.InErrors": _error("udp_receive_errors"),
    "Udp.RcvbufErrors": _error("udp_receive_buffer_full"),
    "TcpExt.TCPLostRetransmit": _error("tcp_retransmits_lost", "segments"),
    "TcpExt.TCPTimeouts": _error("tcp_timeouts", "events"),
    "TcpExt.TCPFastRetrans": Meaning("tcp_fast_retransmits", "segments"),
    "TcpExt.TCPSynRetrans": _error("tcp_syn_retransmits", "segments"),
    "TcpExt.TCPBacklogDrop": _error("tcp_backlog_dropped"),
    "TcpExt.TCPRcvQDrop": _error("tcp_receive_queue_dropped"),
    "TcpExt.ListenDrops": _error("tcp_listen_dropped", "events"),
    "TcpExt.TCPDSACKRecv": Meaning("tcp_duplicate_acks", "events"),
    "IpExt.InCEPkts": Meaning("ip_congestion_marks"),
    # /proc/net/softnet_stat: one counter a CPU, 32 bits wide.
    "softnet.processed": Meaning("softnet_processed", bits=32),
    "softnet.dropped": Meaning("softnet_dropped", bits=32, error=True),
    "softnet.time_squeeze": Meaning("softnet_time_squeezed", "events", bits=32),
    "softnet.flow_limit": Meaning("softnet_flow_limited", bits=32, error=True),
}
HOST_COUNTERS = frozenset(_HOST)
_CPU = re.compile(r"cpu(\d+)\.(idle|iowait|softirq|steal)")

# How often the driver itself brings its numbers up to date, where reading does not make it: between two refreshes the
# same value comes again, and a rate over one read is nothing or twice too much. (bnxt: stats_coal_ticks, 1 s; ice,
# i40e: the service task; ixgbe: its watchdog.) Ring counts of ice, i40e and ixgbe in the kernel's own table are live.
_REFRESH_NS = {_BNXT: 1_000_000_000, _ICE: 1_000_000_000, _I40E: 2_000_000_000, _IXGBE: 2_000_000_000}
_NETDEV_REFRESH_NS = {_BNXT: 1_000_000_000}


def netdev(name: str) -> Meaning | None:
    """A counter of ``/proc/net/dev`` or ``statistics``: by the kernel's own name."""
    if name in NETDEV_ERRORS:
        return _error(name)
    return Meaning(name, _NETDEV_COUNTS[name]) if name in _NETDEV_COUNTS else None


def rdma(name: str) -> Meaning | None:
    """A counter of an RDMA port: ``counters/…`` or ``hw_counters/…`` below ``ports/N``, as records name them."""
    directory, _, counter = name.partition("/")
    return (_RDMA_PORT if directory == "counters" else _RDMA_HARDWARE).get(counter)


def host(name: str) -> Meaning | None:
    """A counter of the whole host: ``Tcp.RetransSegs``, ``softnet.dropped``; ``softnet.dropped.3`` is that of CPU 3."""
    if name.startswith("softnet."):
        name = name.rstrip("0123456789").rstrip(".")
    elif _CPU.fullmatch(name):
        return Meaning(name.rpartition(".")[2], "ticks")
    return _HOST.get(name)


@cache
def _patterns(driver: str) -> Sequence[tuple[re.Pattern[str], Meaning]]:
    found = [(re.compile(names[driver]), meaning) for meaning, names in _ETHTOOL.items() if driver in names]
    return tuple(found)


def ethtool(driver: str, name: str) -> Meaning | None:
    """A driver's statistic; None for one that is not of the vocabulary, which is most of them."""
    for pattern, meaning in _patterns(driver):
        match = pattern.fullmatch(name)
        if match:
            priority = match.groupdict().get("p")
            if priority is None:
                return meaning
            return Meaning(
                meaning.name, meaning.unit, meaning.scale, meaning.bits, meaning.saturates, meaning.gauge,
                meaning.error, int(priority),
            )  # fmt: skip
    return None


def known_drivers() -> frozenset[str]:
    """Drivers whose statistics the vocabulary knows."""
    return frozenset(driver for names in _ETHTOOL.values() for driver in names)


def allowed(driver: str, names: Iterable[str]) -> list[int]:
    """Places of the statistics that are recorded, among all that the driver has."""
    return [place for place, name in enumerate(names) if ethtool(driver, name) is not None]


def refresh_ns(driver: str, *, of_netdev: bool) -> int:
    """How old a value may be when it is read; 0 where reading brings it up to date."""
    return (_NETDEV_REFRESH_NS if of_netdev else _REFRESH_NS).get(driver, 0)


def error_names() -> frozenset[str]:
    """All names that errors are counted by: the kernel's for its own table, ours for drivers and RDMA."""
    tables = (*_ETHTOOL, *_RDMA_PORT.values(), *_RDMA_HARDWARE.values(), *_HOST.values())
    return NETDEV_ERRORS | {meaning.name for meaning in tables if meaning.error}
