"""The capture that ships with the repository: what is in it, that it is intact, and that its recorder works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path

import dpkt
import pytest
from packet_oracle import (
    ICMP,
    ICMPV6,
    IPV4,
    IPV6,
    TCP,
    UDP,
    Record,
    both_ways,
    header_sum_ok,
    records,
    transport_sum_ok,
)

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "captures"
CAPTURE = FOLDER / "office.pcap"
NETWORKS = ("10.0.0.0/24", "192.0.2.0/30", "198.51.100.0/24", "2001:db8::/32", "fe80::/10", "ff02::/16")


@pytest.fixture(scope="module")
def office() -> list[Record]:
    return list(records(CAPTURE.read_bytes()))


def _upper(record: Record) -> int:
    """The transport protocol; of an IPv6 fragment, as tcpdump filters see it, none unless it is ICMPv6 or UDP."""
    if record.ethertype == IPV6 and record.ip_fragment:
        return record.frame[54]
    return record.protocol


def _syn(record: Record) -> bool:
    return record.protocol == TCP and not record.ip_fragment and record.segment[13] & 0x12 == 2


def _icmp_error(record: Record) -> bool:
    return record.protocol == ICMP and not record.ip_fragment and record.segment[0] in (3, 11)


def _icmpv6_error(record: Record) -> bool:
    return record.protocol == ICMPV6 and record.segment[0] < 4


def _dns(record: Record) -> bool:
    # A later fragment has no ports.
    later = record.ethertype == IPV4 and int.from_bytes(record.frame[20:22]) & 0x1FFF
    return record.protocol == UDP and not later and 53 in record.flow[2::2]


COUNTED: dict[str, Callable[[Record], bool]] = {
    "all": lambda r: True,
    "short web transfers, kept-alive ones, and a few long flows": lambda r: _upper(r) == TCP,
    "IPv6": lambda r: r.ethertype == IPV6,
    "ARP": lambda r: r.ethertype == 0x0806,
    "DNS over UDP": _dns,
    "SYNs, unanswered ones and repeats included": _syn,
    "IPv4 fragments: DNS answers, large pings, datagrams": lambda r: r.ethertype == IPV4 and r.ip_fragment,
    "IPv6 fragments": lambda r: r.ethertype == IPV6 and r.ip_fragment,
    "ICMP errors: port unreachable (both ways), fragmentation needed, time exceeded": _icmp_error,
    "ICMPv6 errors: the same kinds": _icmpv6_error,
    "pings and errors": lambda r: r.protocol == ICMP,
    "pings, errors and neighbour discovery": lambda r: r.ethertype == IPV6 and _upper(r) == ICMPV6,
    "DNS, iperf3 datagrams of 4000 bytes, traceroute; first fragments count here": lambda r: _upper(r) == UDP,
}


def test_the_readme_states_the_counts(office: list[Record]) -> None:
    rows = re.findall(r"^\| (\d+) \| `[^|]*` \| (.+) \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert {text for _, text in rows} == set(COUNTED)
    assert {text: int(count) for count, text in rows} == {
        text: sum(map(matches, office)) for text, matches in COUNTED.items()}
    average = sum(record.length for record in office) / len(office)
    assert f"({average:.0f} bytes on average)" in (FOLDER / "README.md").read_text()


def test_it_is_small_ordered_and_covers_the_interesting_cases(office: list[Record]) -> None:
    assert CAPTURE.stat().st_size < 1_000_000
    assert 4000 <= len(office) <= 10_000
    times = [record.time for record in office]
    assert times == sorted(times)
    assert any(time % 1000 for time in times), "the time stamps have no nanoseconds"
    ports = {both_ways(r.flow) for r in office if r.protocol in (TCP, UDP) and not r.ip_fragment}
    assert len(ports) >= 300
    packets = Counter(both_ways(r.flow) for r in office if r.protocol == TCP and not r.ip_fragment)
    assert sum(count >= 100 for count in packets.values()) >= 4, "too few long flows"
    assert sum(count <= 20 for count in packets.values()) >= 200, "too few short flows"


def test_errors_of_every_kind_and_direction(office: list[Record]) -> None:
    v4 = {(r.segment[0], r.segment[1], r.frame[26] == 10) for r in office if _icmp_error(r)}
    assert v4 >= {(3, 3, False), (3, 3, True), (3, 4, False), (11, 0, False)}
    v6 = {(r.segment[0], r.frame[22:28] == bytes.fromhex("20010db80001")) for r in office if _icmpv6_error(r)}
    assert v6 >= {(1, False), (1, True), (2, False), (3, False)}


def test_dns_messages_parse(office: list[Record]) -> None:
    messages = [dpkt.dns.DNS(r.segment[8:]) for r in office if _dns(r) and not r.ip_fragment]
    assert sum(m.qr == dpkt.dns.DNS_Q for m in messages) >= 140
    assert sum(m.qr == dpkt.dns.DNS_R and len(m.an) > 0 for m in messages) >= 50


def test_every_checksum_is_right(office: list[Record]) -> None:
    v4 = [r for r in office if r.ethertype == IPV4]
    assert [r for r in v4 if not header_sum_ok(r)] == []
    complete = [r for r in office if r.protocol in (TCP, UDP, ICMP, ICMPV6) and r.whole and not r.ip_fragment]
    assert len(complete) > 3500
    assert [r for r in complete if not transport_sum_ok(r)] == []


def test_only_bulk_packets_are_cut(office: list[Record]) -> None:
    bulk = {bytes((198, 51, 100, last)) for last in (20, 30)}
    cut = [record for record in office if not record.whole]
    assert all(len(record.frame) == 96 and bulk & set(record.addresses) for record in cut)
    assert 1000 < len(cut) < len(office) / 2


def test_addresses_are_private_or_for_documentation(office: list[Record]) -> None:
    networks = [ip_network(text) for text in NETWORKS]
    for address in {a for r in office if r.ethertype in (IPV4, IPV6) for a in r.addresses}:
        assert any(ip_address(address) in network for network in networks), ip_address(address)
    macs = {mac for r in office for mac in (r.frame[:6], r.frame[6:12])}
    assert all(mac[0] & 0x03 == 0x02 or mac[0] & 1 for mac in macs), "a MAC that is not locally administered"


@pytest.mark.needs("netns")
def test_the_recorder_makes_such_a_capture_and_leaves_nothing(tmp_path: Path) -> None:
    absent = [t for t in ("tcpdump", "ethtool", "curl", "ping", "traceroute", "dig", "dnsmasq", "iperf3")
              if not shutil.which(t)]
    if absent:
        pytest.skip(f"the recorder needs {', '.join(absent)}")
    output = tmp_path / "quick.pcap"
    before = _namespaces()
    done = subprocess.run([sys.executable, str(FOLDER / "record.py"), "--quick", "-o", str(output)],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert _namespaces() <= before
    assert list(tmp_path.iterdir()) == [output]
    packets = list(records(output.read_bytes()))
    assert len(packets) > 300
    assert all(header_sum_ok(r) for r in packets if r.ethertype == IPV4)
    protocols = {record.protocol for record in packets}
    assert protocols >= {TCP, UDP, ICMP, ICMPV6}
    assert any(record.ip_fragment for record in packets)


def _namespaces() -> set[str]:
    listing = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listing.splitlines() if line.startswith("corarec")}


def test_the_recorder_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "record.py"), "-o", str(tmp_path / "x.pcap")],
                          env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "missing programs: curl, dig" in done.stderr
    assert "apt-get install curl dnsmasq-base" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
