"""The words for what the native reader reports: refusals at opening, and notes while reading."""

from __future__ import annotations

from collections.abc import Callable

from cora.errors import CoraError, Kind, fail

LINK_NAMES = {
    0: "NULL", 1: "ETHERNET", 9: "PPP", 12: "RAW", 14: "RAW", 50: "PPP_HDLC", 101: "RAW", 104: "C_HDLC",
    105: "IEEE802_11", 107: "FRELAY", 108: "LOOP", 113: "LINUX_SLL", 127: "IEEE802_11_RADIOTAP", 147: "USER0",
    187: "BLUETOOTH_HCI_H4", 189: "USB_LINUX", 195: "IEEE802_15_4", 220: "USB_LINUX_MMAPPED", 228: "IPV4",
    229: "IPV6", 239: "NFLOG", 247: "INFINIBAND", 252: "WIRESHARK_UPPER_PDU", 253: "NETLINK", 276: "LINUX_SLL2",
}
"""Names of https://www.tcpdump.org/linktypes.html for messages; not only the supported ones."""

SUPPORTED_HINT = (
    "supported are Ethernet (1), Linux cooked (113, 276), raw IP (12, 101, 228, 229), NULL (0) and LOOP (108); "
    "capture on another interface, or convert the file"
)


def link_name(number: int) -> str:
    """Link type as people write it: ``113 (LINUX_SLL)``."""
    name = LINK_NAMES.get(number)
    return f"{number} ({name})" if name else str(number)


def _options(a: int, b: int) -> str:
    return f"interface option {a} has an impossible length of {b} bytes, ignored"


# One text per enum cora_note_kind, in its order, from the two numbers of the note.
NOTE_TEXTS: tuple[Callable[[int, int], str], ...] = (
    lambda a, b: f"packets of interface {a} are skipped: link type {link_name(b)} is not supported",
    lambda a, b: f"times of interface {a} have a unit of {resolution_text(b)}, finer than 1 ns: truncated to whole ns",
    lambda a, b: "simple packet blocks carry no time: each takes the time of the packet before it",
    lambda a, b: f"frames end with a check sequence of {a} octets, kept as padding",
    lambda a, b: f"the file ends inside a record header, {a} bytes are left over",
    lambda a, b: f"the file ends inside a record: {a} bytes needed, {b} left",
    lambda a, b: f"captured length {a} is impossible, the remaining {b} bytes are not readable",
    lambda a, b: f"original length {a} is impossible, record skipped",
    lambda a, b: f"original length {a} is below the captured length {b}, which is used instead",
    lambda a, b: f"sub-second field {a} is a second or more, added as it is",
    lambda a, b: "time is outside 1970 to 2554, clamped",
    lambda a, b: f"the file ends inside a block header, {a} bytes are left over",
    lambda a, b: f"the file ends inside a block: {a} bytes needed, {b} left",
    lambda a, b: f"block length {a} is impossible, reading stops",
    lambda a, b: f"block lengths at start ({a}) and end ({b}) differ, reading stops",
    lambda a, b: f"block of type {a} has only {b} bytes inside, too few, skipped",
    lambda a, b: f"captured length {a} does not fit the {b} bytes of its block, packet skipped",
    lambda a, b: f"packet of interface {a}, which its section has not described, skipped",
    lambda a, b: f"section with an unknown byte-order magic {a:#010x}, reading stops",
    lambda a, b: f"section of unsupported version {a}.{b}, reading stops",
    _options,
    lambda a, b: "more than 65536 interfaces, reading stops",
    lambda a, b: "out of memory, reading stops",
)


def resolution_text(code: int) -> str:
    """The unit that an if_tsresol octet stands for: ``10^-6 s`` or ``2^-20 s``."""
    return f"{2 if code & 0x80 else 10}^-{code & 0x7f} s"


def refusal(name: str, status: int, detail: int, head: bytes) -> CoraError:
    """The error for an enum cora_open_status other than OK."""
    if status == 1:
        return fail(Kind.FILE_UNREADABLE, "out of memory while opening the capture", where=name)
    if status == 3:
        return fail(Kind.NOT_A_CAPTURE, "byte 0: the file ends inside the capture's file header", where=name,
                    hint="the file was cut: copy or record it again")
    if status == 4:
        return fail(Kind.NOT_A_CAPTURE, "byte 0: this is the modified pcap format (magic 0xa1b2cd34), whose records "
                    "differ between the programs that wrote it", where=name,
                    hint="convert it with a tool that knows it: editcap -F pcap in.pcap out.pcap")
    if status == 5:
        return fail(Kind.NOT_A_CAPTURE, f"byte 4: capture format version {detail >> 16}.{detail & 0xffff} is not "
                    "supported (pcap 2.0 to 2.4 and pcapng 1.0 are)", where=name)
    if status == 6:
        return fail(Kind.LINK_TYPE, f"byte 20: link type {link_name(detail)} is not supported", where=name,
                    hint=SUPPORTED_HINT)
    if status == 7:
        return fail(Kind.NOT_A_CAPTURE, "byte 0: the first section header block of this pcapng file is corrupt",
                    where=name)
    return fail(Kind.NOT_A_CAPTURE, f"byte 0: {_what_else(head)}", where=name,
                hint="give a pcap or pcapng file, plain or gzip")


_OTHER_FORMATS = (
    (b"\xfd7zXZ\0", "the file is compressed with xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "the file is compressed with zstd: unpack it first"),
    (b"BZh", "the file is compressed with bzip2: unpack it first"),
    (b"\x04\x22\x4d\x18", "the file is compressed with lz4: unpack it first"),
    (b"PK\x03\x04", "the file is a zip archive: unpack it first"),
    (b"\x1f\x8b", "the file is compressed twice with gzip: unpack it once"),
    (b"snoop\0\0\0", "the file is a snoop capture: convert it to pcap"),
    (b"GMBU", "the file is a Network Monitor capture: convert it to pcap"),
    (b"version https:", "the file is a Git LFS pointer, not the capture itself: run git lfs pull"),
)


def _what_else(head: bytes) -> str:
    if not head:
        return "the file is empty"
    for magic, text in _OTHER_FORMATS:
        if head.startswith(magic):
            return text
    return f"the file is not a capture (it starts with {head[:4].hex(' ')})"
