#!/usr/bin/env python3
"""Record office.pcap: real programs talking inside network namespaces that this script makes and removes.

    clients h1..h5 -- bridge of the gateway gw == recorded link == provider isp -- server srv (link MTU 1400)
    10.0.0.11-15       10.0.0.1      192.0.2.1 | 192.0.2.2       198.51.100.1      198.51.100.10 .20 .30 .53
    2001:db8:1::11-15  2001:db8:1::1   2001:db8:ff::1 | ::2      2001:db8:2::1     2001:db8:2::10 ::53

The recording point is the gateway's uplink, so both directions and every fragment are seen. Packets to and from the
two bulk servers (198.51.100.20 iperf3, 198.51.100.30 file mirror) keep their first 96 bytes, which holds the file
under 1 MB; everything else is whole. Lengths on the wire are kept in every record.

Needs root and the programs named in TOOLS. Exit codes: 0 recorded; 2 something is missing or failed (a message says
what); 130 interrupted. The namespaces are removed in every case.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

# Program -> Debian package that holds it.
TOOLS = {
    "ip": "iproute2", "tcpdump": "tcpdump", "ethtool": "ethtool", "curl": "curl", "ping": "iputils-ping",
    "traceroute": "traceroute", "dig": "dnsutils", "dnsmasq": "dnsmasq-base", "iperf3": "iperf3", "python3": "python3",
}
PREFIX = "corarec"
HOSTS = 5
BULK = ("198.51.100.20", "198.51.100.30")
MIRROR = "http://198.51.100.30/large.bin"
BULK_KEEP = 96
SERVER_V4 = ("198.51.100.10", "198.51.100.20", "198.51.100.30", "198.51.100.53")
SERVER_V6 = ("2001:db8:2::10", "2001:db8:2::53")
OFFLOADS = ("tx", "rx", "tso", "gso", "gro")
NANOSECOND_MAGIC = 0xA1B23C4D


class Refused(Exception):
    """Something the script needs is missing or failed; the text is shown to the user as it is."""


def _run(*command: str, may_fail: bool = False, seconds: float = 60) -> int:
    """Run one program to its end, quietly; a failure is an error that quotes what the program said."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode and not may_fail:
        raise Refused(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.returncode


def _check_tools() -> None:
    missing = {tool: package for tool, package in TOOLS.items() if not shutil.which(tool)}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise Refused(f"missing programs: {', '.join(sorted(missing))}; install them: apt-get install {packages}")
    if os.geteuid() != 0:
        raise Refused("network namespaces need root; run it again as root")


class Lab:
    """The namespaces and the programs in them. ``close`` removes all of it and may be called at any point."""

    def __init__(self, folder: Path) -> None:
        """Nothing is made yet; ``folder`` takes the files the servers offer."""
        self.folder = folder
        self.tag = f"{PREFIX}{os.getpid()}"
        self.names: list[str] = []
        self.programs: list[subprocess.Popen[bytes]] = []

    def ns(self, name: str) -> str:
        """The full name of a namespace of this run."""
        return f"{self.tag}-{name}"

    def inside(self, name: str, *command: str, may_fail: bool = False, seconds: float = 60) -> int:
        """Run a program in a namespace to its end."""
        return _run("ip", "netns", "exec", self.ns(name), *command, may_fail=may_fail, seconds=seconds)

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a program in a namespace and keep it for ``close``."""
        log = (self.folder / "programs.log").open("ab")
        with log:
            program = subprocess.Popen(
                ["ip", "netns", "exec", self.ns(name), *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )
        self.programs.append(program)
        return program

    def build(self) -> None:
        """Make the namespaces, links, addresses and routes of the drawing at the top."""
        remove_leftovers()
        for name in ("gw", "isp", "srv", *(f"h{i}" for i in range(1, HOSTS + 1))):
            _run("ip", "netns", "add", self.ns(name))
            self.names.append(self.ns(name))
            # No router or duplicate-address chatter from the kernel before the addresses are there.
            for setting, value in (("ipv6/conf/default/accept_dad", 0), ("ipv6/conf/default/accept_ra", 0),
                                   ("ipv4/icmp_ratelimit", 0), ("ipv6/icmp/ratelimit", 0)):
                self.sysctl(name, setting, value)
            self.inside(name, "ip", "link", "set", "dev", "lo", "up")
        for name in ("gw", "isp"):
            self.sysctl(name, "ipv4/ip_forward", 1)
            self.sysctl(name, "ipv6/conf/all/forwarding", 1)
        self.inside("gw", "ip", "link", "add", "lan", "address", "02:00:00:00:0a:01", "type", "bridge")
        self.link("gw", "wan", "02:00:00:00:01:01", "isp", "cust", "02:00:00:00:01:02", 1500)
        self.link("isp", "far", "02:00:00:00:02:01", "srv", "eth0", "02:00:00:00:02:02", 1400)
        self.address("gw", "lan", "10.0.0.1/24", "2001:db8:1::1/64")
        self.address("gw", "wan", "192.0.2.1/30", "2001:db8:ff::1/64")
        self.address("isp", "cust", "192.0.2.2/30", "2001:db8:ff::2/64")
        self.address("isp", "far", "198.51.100.1/24", "2001:db8:2::1/64")
        self.address("srv", "eth0", *(f"{a}/24" for a in SERVER_V4), *(f"{a}/64" for a in SERVER_V6))
        self.route("gw", "198.51.100.0/24", "192.0.2.2")
        self.route("gw", "2001:db8:2::/64", "2001:db8:ff::2")
        self.route("isp", "10.0.0.0/24", "192.0.2.1")
        self.route("isp", "2001:db8:1::/64", "2001:db8:ff::1")
        for net, via in (("10.0.0.0/24", "198.51.100.1"), ("192.0.2.0/30", "198.51.100.1"),
                         ("2001:db8:1::/64", "2001:db8:2::1"), ("2001:db8:ff::/64", "2001:db8:2::1")):
            self.route("srv", net, via)
        # An address that swallows packets: connections to it stay half open.
        self.inside("isp", "ip", "route", "add", "blackhole", "198.51.100.99/32")
        for i in range(1, HOSTS + 1):
            tail = f"{16 + i:02x}"
            self.link(f"h{i}", "eth0", f"02:00:00:00:0a:{tail}", "gw", f"p{i}", f"02:00:00:00:0b:{tail}", 1500)
            self.inside("gw", "ip", "link", "set", "dev", f"p{i}", "master", "lan")
            self.address(f"h{i}", "eth0", f"10.0.0.{10 + i}/24", f"2001:db8:1::{10 + i}/64")
            for net, via in (("default", "10.0.0.1"), ("default", "2001:db8:1::1")):
                self.route(f"h{i}", net, via)

    def sysctl(self, name: str, setting: str, value: int) -> None:
        """Set one kernel network setting of a namespace."""
        self.inside(name, "sh", "-c", f"echo {value} > /proc/sys/net/{setting}")

    def link(self, a: str, dev_a: str, mac_a: str, b: str, dev_b: str, mac_b: str, mtu: int) -> None:
        """One cable: every packet is a whole packet with its final checksum, as on a real wire."""
        self.inside(a, "ip", "link", "add", "name", dev_a, "address", mac_a, "mtu", str(mtu), "type", "veth",
                    "peer", "name", dev_b, "address", mac_b, "mtu", str(mtu), "netns", self.ns(b))
        for name, device in ((a, dev_a), (b, dev_b)):
            self.inside(name, "ethtool", "-K", device, *(x for f in OFFLOADS for x in (f, "off")))
            self.inside(name, "ip", "link", "set", "dev", device, "up")

    def address(self, name: str, device: str, *addresses: str) -> None:
        """Give a device its addresses."""
        self.inside(name, "ip", "link", "set", "dev", device, "up")
        for address in addresses:
            self.inside(name, "ip", "address", "add", address, "dev", device, *(["nodad"] if ":" in address else []))

    def route(self, name: str, net: str, via: str) -> None:
        """Add one route."""
        self.inside(name, "ip", *(["-6"] if ":" in via else []), "route", "add", net, "via", via)

    def close(self) -> None:
        """Stop every program started here and remove the namespaces."""
        for program in self.programs:
            if program.poll() is None:
                program.terminate()
        for program in self.programs:
            try:
                program.wait(5)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
        for name in self.names:
            _run("ip", "netns", "delete", name, may_fail=True)
        self.names = []


def remove_leftovers() -> None:
    """Remove namespaces of earlier runs that were killed before they could clean up."""
    listing = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for line in listing.splitlines():
        name = line.split()[0] if line.split() else ""
        owner = name.removeprefix(PREFIX).split("-")[0]
        if name.startswith(PREFIX) and owner.isdigit() and not Path("/proc", owner).exists():
            _run("ip", "netns", "delete", name, may_fail=True)


def start_servers(lab: Lab) -> subprocess.Popen[bytes]:
    """Web (HTTP/1.0 and 1.1), file mirror, DNS and iperf3 servers. Returns the DNS server."""
    pages = lab.folder / "pages"
    pages.mkdir()
    words = random.Random(7)
    for size in (60, 200, 400, 900, 1800):
        (pages / f"p{size}.txt").write_text("".join(words.choice("abcdefgh \n") for _ in range(size)))
    (pages / "large.bin").write_bytes(bytes(800_000))
    web = ("python3", "-m", "http.server", "--directory", str(pages))
    lab.start("srv", *web, "--bind", "198.51.100.10", "80")
    lab.start("srv", *web, "--bind", "198.51.100.10", "--protocol", "HTTP/1.1", "8080")
    lab.start("srv", *web, "--bind", "198.51.100.30", "80")
    lab.start("srv", *web, "--bind", "2001:db8:2::10", "80")
    lab.start("srv", "iperf3", "--server", "--bind", "198.51.100.20")
    # Several strings of at most 255 bytes: an answer of about 2 kB that needs fragments over UDP.
    big = ",".join(["big.example.com", *(f"{i:02d}-" + "t" * 240 for i in range(8))])
    dns = lab.start(
        "srv", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root",
        "--pid-file=", "--log-facility=-", "--bind-interfaces", "--listen-address=198.51.100.53",
        "--listen-address=2001:db8:2::53", "--edns-packet-max=4096", "--local=/example.com/",
        "--address=/example.com/198.51.100.10", "--address=/example.com/2001:db8:2::10",
        "--mx-host=example.com,mail.example.com,10", "--txt-record=example.com,v=spf1 -all", f"--txt-record={big}",
    )
    for site in ("198.51.100.10", "198.51.100.10:8080", "198.51.100.30", "[2001:db8:2::10]"):
        fetch = ("curl", "-s", "-m", "2", "-o", "/dev/null", f"http://{site}/")
        wait_for(partial(lab.inside, "srv", *fetch, may_fail=True), f"the web server {site}")
    for server in ("198.51.100.53", "2001:db8:2::53"):
        ask = ("dig", "+time=1", "+tries=1", f"@{server}", "example.com")
        wait_for(partial(lab.inside, "srv", *ask, may_fail=True), f"the DNS server {server}")
    return dns


def wait_for(probe: Callable[[], int], what: str) -> None:
    """Try until the probe gives 0, for ten seconds at most."""
    deadline = time.monotonic() + 10
    while probe() != 0:
        if time.monotonic() > deadline:
            raise Refused(f"{what} did not answer within 10 s")
        time.sleep(0.05)


def web(lab: Lab, host: str, dice: random.Random, count: int) -> None:
    """Short transfers, one connection each, now and then a kept-alive one, IPv6, an error or a refusal."""
    for i in range(count):
        page = f"p{dice.choice((60, 60, 200, 200, 400, 900, 1800))}.txt"
        curl = ("curl", "-s", "-m", "5", "-o", "/dev/null")
        kind = i % 12
        if kind == 3:
            urls = [f"http://198.51.100.10:8080/p{s}.txt" for s in dice.sample((60, 200, 400, 900, 1800), 3)]
            each = [x for url in urls for x in ("-o", "/dev/null", url)]
            lab.inside(host, "curl", "-s", "-m", "5", *each, may_fail=True)
        elif kind in (5, 10):
            lab.inside(host, *curl, f"http://[2001:db8:2::10]/{page}", may_fail=True)
        elif kind == 7:
            lab.inside(host, *curl, "http://198.51.100.10/absent", may_fail=True)
        elif kind == 11 and i % 24 == 11:
            lab.inside(host, *curl, "http://198.51.100.10:81/", may_fail=True)
        else:
            lab.inside(host, *curl, f"http://198.51.100.10/{page}", may_fail=True)
        time.sleep(dice.uniform(0, 0.06))


def dns_queries(lab: Lab, host: str, dice: random.Random, count: int) -> None:
    """Look-ups over IPv4 and IPv6, large answers in fragments, and the retry over TCP after a cut answer."""
    for i in range(count):
        server = "2001:db8:2::53" if i % 4 == 1 else "198.51.100.53"
        dig = ("dig", "+tries=1", "+time=2", f"@{server}")
        name = f"{dice.choice(('www', 'mail', 'img', 'cdn', 'api'))}{dice.randrange(20)}.example.com"
        if i % 10 == 6:
            lab.inside(host, *dig, "+bufsize=4096", "+ignore", "big.example.com", "TXT", may_fail=True)
        elif i % 20 == 8:
            lab.inside(host, *dig, "+bufsize=512", "big.example.com", "TXT", may_fail=True)
        else:
            lab.inside(host, *dig, name, dice.choice(("A", "A", "AAAA", "MX", "TXT")), may_fail=True)
        time.sleep(dice.uniform(0, 0.08))


def pings(lab: Lab, host: str, count: int) -> None:
    """Echoes small and large (fragmented), unfragmentable ones beyond the far link's MTU, and route traces."""
    ping = ("ping", "-n", "-q", "-i", "0.2", "-W", "1", "-c")
    for target, large in (("198.51.100.10", "4000"), ("2001:db8:2::10", "3000")):
        for size in ("56", large):
            lab.inside(host, *ping, str(count), "-s", size, target, may_fail=True)
    for target in ("198.51.100.53", "2001:db8:2::53"):
        lab.inside(host, *ping, "2", "-s", "1440", "-M", "do", target, may_fail=True)
        lab.inside(host, *ping, "1", "-t", "2", target, may_fail=True)
        lab.inside(host, "traceroute", "-n", "-q", "1", "-w", "1", target, may_fail=True)


def refused_datagrams(lab: Lab, host: str, dns: subprocess.Popen[bytes]) -> None:
    """Port-unreachable errors both ways: nobody listens at the server, then nobody waits at the client any more."""
    for server in ("198.51.100.10", "2001:db8:2::10"):
        lab.inside(host, "dig", "+tries=1", "+time=1", f"@{server}", "nobody.example.com", may_fail=True)
    dns.send_signal(signal.SIGSTOP)
    try:
        for server in ("198.51.100.53", "2001:db8:2::53"):
            lab.inside(host, "dig", "+tries=1", "+time=1", f"@{server}", "late.example.com", may_fail=True)
    finally:
        dns.send_signal(signal.SIGCONT)
    time.sleep(0.3)


def bulk(lab: Lab, quick: bool) -> None:
    """A few long flows: a paced download, an aborted one, an upload, and datagrams larger than the MTU."""
    if quick:
        lab.inside("h5", "iperf3", "-c", "198.51.100.20", "-u", "-l", "4000", "-k", "5", may_fail=True)
        return
    lab.inside("h5", "iperf3", "-c", "198.51.100.20", "-u", "-l", "4000", "-b", "1M", "-k", "40", may_fail=True)
    lab.inside("h5", "curl", "-s", "-m", "1", "--limit-rate", "150K", "-o", "/dev/null", MIRROR, may_fail=True)
    lab.inside("h5", "iperf3", "-c", "198.51.100.20", "-n", "300K", "-b", "2M", may_fail=True)
    lab.inside("h5", "iperf3", "-c", "198.51.100.20", "-R", "-n", "100K", "-b", "2M", may_fail=True)


def traffic(lab: Lab, dns: subprocess.Popen[bytes], quick: bool, seed: int) -> None:
    """All clients at once; returns when the last one is done. An error in one of them is raised here."""
    scale = 1 if quick else 8
    dice = [random.Random(seed * 100 + i) for i in range(HOSTS)]
    fetch = ("curl", "-s", "-o", "/dev/null")
    jobs: list[list[Callable[[], object]]] = [
        [partial(web, lab, "h1", dice[0], 12 * scale)],
        [partial(web, lab, "h2", dice[1], 12 * scale)],
        [partial(web, lab, "h3", dice[2], 8 * scale), partial(pings, lab, "h3", 1 if quick else 4)],
        [partial(dns_queries, lab, "h4", dice[3], 20 * scale), partial(refused_datagrams, lab, "h4", dns)],
        [partial(bulk, lab, quick)],
        [partial(lab.inside, "h2", *fetch, "-m", "1" if quick else "3.5", "http://198.51.100.99/", may_fail=True)],
    ]
    if not quick:
        jobs.append([partial(lab.inside, "h1", *fetch, "--limit-rate", "100K", MIRROR, may_fail=True)])
    failures: list[BaseException] = []

    def guarded(steps: list[Callable[[], object]]) -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def finish(data: bytes) -> bytes:
    """Put the packets into time order, and cut those of the bulk servers to their first BULK_KEEP bytes.

    The kernel stamps packets on two processors and hands them over a few microseconds out of order. The records keep
    the length on the wire.
    """
    if len(data) < 24 or struct.unpack_from("<I", data)[0] != NANOSECOND_MAGIC:
        raise Refused("tcpdump did not write a little-endian nanosecond capture")
    addresses = {socket.inet_aton(address) for address in BULK}
    packets: list[tuple[int, bytes]] = []
    at = 24
    while at + 16 <= len(data):
        seconds, nanos, kept, length = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16:at + 16 + kept]
        at += 16 + kept
        if frame[12:14] == b"\x08\x00" and addresses & {frame[26:30], frame[30:34]}:
            frame = frame[:BULK_KEEP]
        packets.append((seconds * 10**9 + nanos, struct.pack("<IIII", seconds, nanos, len(frame), length) + frame))
    packets.sort(key=lambda packet: packet[0])
    return data[:24] + b"".join(packet for _, packet in packets)


def record(output: Path, quick: bool, seed: int) -> None:
    """Build, record, and put the finished capture in place in one step."""
    _check_tools()
    if not output.parent.is_dir():
        raise Refused(f"there is no folder {output.parent} to put the capture into")
    with tempfile.TemporaryDirectory(prefix="cora-record-") as name:
        folder = Path(name)
        lab = Lab(folder)
        raw = folder / "raw.pcap"
        try:
            lab.build()
            dns = start_servers(lab)
            sniffer = lab.start("gw", "tcpdump", "-i", "wan", "-n", "-U", "-s", "0", "-B", "16384", "-Z", "root",
                                "--time-stamp-precision=nano", "-w", str(raw))
            wait_for(lambda: 0 if raw.exists() and raw.stat().st_size >= 24 else 1, "tcpdump")
            traffic(lab, dns, quick, seed)
            time.sleep(0.5)
            sniffer.send_signal(signal.SIGINT)
            sniffer.wait(10)
        finally:
            lab.close()
        log = (folder / "programs.log").read_text(errors="replace")
        if "0 packets dropped by kernel" not in log:
            raise Refused(f"the recording lost packets or failed; the programs said:\n{log[-2000:]}")
        unfinished = output.with_name(f".{output.name}.{os.getpid()}")
        try:
            unfinished.write_bytes(finish(raw.read_bytes()))
            unfinished.replace(output)
        except OSError as error:
            raise Refused(f"cannot write {output}: {error.strerror}") from error
        finally:
            unfinished.unlink(missing_ok=True)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the text at the top of the file."""
    parser = argparse.ArgumentParser(description="Record office.pcap from real programs in network namespaces.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).resolve().parent / "office.pcap")
    parser.add_argument("--quick", action="store_true", help="a few seconds of the same traffic, for a check")
    parser.add_argument("--seed", type=int, default=1, help="which pages and names are asked for, and the pauses")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        record(options.output, options.quick, options.seed)
    except KeyboardInterrupt:
        print("interrupted; the namespaces were removed", file=sys.stderr)
        return 130
    except (Refused, OSError, subprocess.SubprocessError) as error:
        print(f"record.py: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}: {options.output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
