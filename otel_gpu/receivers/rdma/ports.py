"""What do the ports of this host's RDMA devices say? Counters in sysfs, under names that each driver has of its own.

A counter may be of 32 bits and begin anew at 0, and so may one of a device that was set up anew: what is less than half of the
range is taken for the former. A device may vanish while it is read.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping

from ...signals.metrics import AttributeValue, Measurement, MetricSpec, Resource, attributes
from ...signals.structs import Frozen, Record
from . import metrics as m

ROOT = "/sys/class/infiniband"
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST_DEVICES, _MOST_PORTS, _MOST_COUNTERS = 256, 16, 512
_MOST_BYTES = 64
_RANGE = 1 << 32

_TRANSMIT, _RECEIVE = {"network.io.direction": "transmit"}, {"network.io.direction": "receive"}


class _Meaning(Frozen):
    """What a counter stands for."""

    metric: MetricSpec
    attributes: Mapping[str, AttributeValue]
    unit: int = 1
    """How much one of it is."""


def _nack(kind: str) -> _Meaning:
    return _Meaning(m.PORT_NACKS, {"rdma.nack.type": kind})


def _congestion(kind: str) -> _Meaning:
    return _Meaning(m.PORT_CONGESTION, {"rdma.congestion.type": kind})


_TIMEOUT, _RETRANSMIT = _Meaning(m.PORT_TIMEOUTS, {}), _Meaning(m.PORT_RETRANSMITS, {})
_PACKETS_OUT, _PACKETS_IN = _Meaning(m.PORT_PACKETS, _TRANSMIT), _Meaning(m.PORT_PACKETS, _RECEIVE)
_BYTES_OUT, _BYTES_IN = _Meaning(m.PORT_IO, _TRANSMIT), _Meaning(m.PORT_IO, _RECEIVE)
_ERRORS = (
    # counters/, as InfiniBand has them
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    # mlx5
    "out_of_sequence",
    "duplicate_request",
    "out_of_buffer",
    "req_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_remote_access_errors",
    "resp_local_length_error",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "rx_icrc_encapsulated",
    # rxe
    "out_of_seq_request",
    "send_rnr_err",
    "completer_retry_err",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "send_err",
    # bnxt_re
    "max_retry_exceeded",
    "missing_resp",
    "oos_drop_count",
    "recoverable_errors",
    "unrecoverable_err",
    # efa
    "rx_drops",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "retrans_timeout_events",
    "impaired_remote_conn_events",
    "unresponsive_remote_events",
)
_OF_COUNTERS: dict[str, _Meaning] = {
    "port_xmit_packets": _PACKETS_OUT,
    "port_rcv_packets": _PACKETS_IN,
    # In units of four bytes (InfiniBand, PortCountersExtended).
    "port_xmit_data": _Meaning(m.PORT_IO, _TRANSMIT, 4),
    "port_rcv_data": _Meaning(m.PORT_IO, _RECEIVE, 4),
    "port_xmit_wait": _congestion("wait"),
}
_OF_HARDWARE: dict[str, _Meaning] = {
    # mlx5
    "packet_seq_err": _nack("sequence"),
    "implied_nak_seq_err": _nack("implied"),
    "rnr_nak_retry_err": _nack("rnr"),
    "local_ack_timeout_err": _TIMEOUT,
    "roce_adp_retrans": _RETRANSMIT,
    "np_cnp_sent": _congestion("cnp_sent"),
    "rp_cnp_handled": _congestion("cnp_handled"),
    "rp_cnp_ignored": _congestion("cnp_ignored"),
    "np_ecn_marked_roce_packets": _congestion("ecn_marked"),
    "roce_slow_restart": _congestion("slow_restart"),
    # rxe
    "sent_pkts": _PACKETS_OUT,
    "rcvd_pkts": _PACKETS_IN,
    "rcvd_seq_err": _nack("sequence"),
    "rcvd_rnr_err": _nack("rnr"),
    # irdma
    "cnpSent": _congestion("cnp_sent"),
    "cnpHandled": _congestion("cnp_handled"),
    "cnpIgnored": _congestion("cnp_ignored"),
    "RxECNMrkd": _congestion("ecn_marked"),
    "tcpRetransSegs": _RETRANSMIT,
    "ip4OutPkts": _PACKETS_OUT,
    "ip6OutPkts": _PACKETS_OUT,
    "ip4InPkts": _PACKETS_IN,
    "ip6InPkts": _PACKETS_IN,
    "ip4OutOctets": _BYTES_OUT,
    "ip6OutOctets": _BYTES_OUT,
    "ip4InOctets": _BYTES_IN,
    "ip6InOctets": _BYTES_IN,
    # bnxt_re, whose bytes and packets are efa's names as well
    "seq_err_naks_rcvd": _nack("sequence"),
    "rnr_naks_rcvd": _nack("rnr"),
    "to_retransmits": _TIMEOUT,
    "tx_cnp_pkts": _congestion("cnp_sent"),
    "rx_cnp_pkts": _congestion("cnp_handled"),
    "rx_ecn_marked_pkts": _congestion("ecn_marked"),
    "tx_pkts": _PACKETS_OUT,
    "rx_pkts": _PACKETS_IN,
    "tx_bytes": _BYTES_OUT,
    "rx_bytes": _BYTES_IN,
    # efa
    "retrans_pkts": _RETRANSMIT,
}
_FOLDERS = (("counters", _OF_COUNTERS), ("hw_counters", _OF_HARDWARE))
_NACKS = ("rdma.port.nacks",)
_RETRANSMITTED = ("rdma.port.nacks", "rdma.port.timeouts", "rdma.port.retransmits")


class _Port(Record):
    """What a port said last."""

    values: dict[str, int]


class PortReader:
    """Reads the ports of this host. Owned by one thread."""

    def __init__(self, host: Resource, root: str = ROOT) -> None:
        self._host = host
        self._root = root
        self._ports: dict[tuple[str, int], _Port] = {}

    def collect(self) -> list[Measurement]:
        """Return what the ports counted since the last call; of a port that is new, from now on."""
        found: list[Measurement] = []
        seen = set()
        for device, port, path in self._all():
            seen.add((device, port))
            found += self._read(device, port, path)
        for gone in self._ports.keys() - seen:
            del self._ports[gone]
        return found

    def gid(self, device: str, port: int, index: int) -> str:
        """Return an entry of a port's table of GIDs, as sysfs writes it; empty where there is none."""
        if not _NAME.fullmatch(device) or device in (".", ".."):
            return ""
        return _text(os.path.join(self._root, device, "ports", str(port), "gids", str(index)))

    def _all(self) -> Iterator[tuple[str, int, str]]:
        for device in _names(self._root)[:_MOST_DEVICES]:
            ports = os.path.join(self._root, device, "ports")
            for port in _names(ports)[:_MOST_PORTS]:
                if port.isascii() and port.isdigit():
                    yield device, int(port), os.path.join(ports, port)

    def _read(self, device: str, port: int, path: str) -> Iterator[Measurement]:
        here: dict[str, AttributeValue] = {"rdma.device": device, "rdma.port": port}
        now = {
            f"{folder}/{name}": value
            for folder, _ in _FOLDERS
            for name in _names(os.path.join(path, folder))[:_MOST_COUNTERS]
            if (value := _number(os.path.join(path, folder, name))) is not None
        }
        state = _text(os.path.join(path, "state"))
        if state:
            layer = _text(os.path.join(path, "link_layer"))
            attrs = attributes({**here, "rdma.link_layer": layer if layer in ("InfiniBand", "Ethernet") else None})
            yield Measurement(self._host, m.PORT_STATE, attrs, int("ACTIVE" in state))
        if (speed := _speed(_text(os.path.join(path, "rate")))) is not None:
            yield Measurement(self._host, m.PORT_SPEED, attributes(here), speed)
        before = self._ports.get((device, port))
        self._ports[device, port] = _Port(now)
        if before is None:
            return
        grown = {name: _since(value, before.values[name]) for name, value in now.items() if name in before.values}
        totals: Counter[str] = Counter()
        sent = 0
        for (metric, attrs), value in self._meant(grown).items():
            totals[metric.name] += value
            if metric is m.PORT_PACKETS and dict(attrs) == _TRANSMIT:
                sent = value
            yield Measurement(self._host, metric, attributes({**here, **dict(attrs)}), value)
        if sent:
            nacks, again = (sum(totals[name] for name in names) for names in (_NACKS, _RETRANSMITTED))
            if any(name in totals for name in _NACKS):
                yield Measurement(self._host, m.PORT_NACK_RATIO, attributes(here), nacks / sent)
            if any(name in totals for name in _RETRANSMITTED):
                yield Measurement(self._host, m.PORT_RETRANSMIT_RATIO, attributes(here), again / sent)

    @staticmethod
    def _meant(grown: Mapping[str, int]) -> Mapping[tuple[MetricSpec, tuple[tuple[str, AttributeValue], ...]], int]:
        added: Counter[tuple[MetricSpec, tuple[tuple[str, AttributeValue], ...]]] = Counter()
        taken = set[tuple[MetricSpec, str]]()
        for folder, meanings in _FOLDERS:
            mine = set[tuple[MetricSpec, str]]()
            for name, meaning in meanings.items():
                what = meaning.metric, str(meaning.attributes)
                # Where both folders tell of packets it is the same ones.
                if (value := grown.get(f"{folder}/{name}")) is not None and what not in taken:
                    mine.add(what)
                    added[meaning.metric, attributes(meaning.attributes)] += value * meaning.unit
            taken |= mine
        for name in _ERRORS:
            told = [value for folder, _ in _FOLDERS if (value := grown.get(f"{folder}/{name}")) is not None]
            if told:
                added[m.PORT_ERRORS, attributes({"error.type": name})] += told[0]
        return added


def _since(now: int, before: int) -> int:
    if now >= before:
        return now - before
    round_ = now + _RANGE - before
    # Of a device that was set up anew it is what it counted since.
    return round_ if before < _RANGE and round_ < _RANGE // 2 else now


def _names(folder: str) -> list[str]:
    try:
        found = os.listdir(folder)
    except OSError:
        return []
    return sorted(name for name in found if _NAME.fullmatch(name) and name not in (".", ".."))


def _text(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, _MOST_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def _speed(rate: str) -> int | None:
    """Return bytes per second of `100 Gb/sec (4X EDR)`."""
    number, _, rest = rate.partition(" ")
    if not rest.startswith("Gb/sec") or not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", number):
        return None
    return int(float(number) * 1e9) // 8
