// Source NAT for IPv4: address and port translation as RFC 3022, 4787, 5382, 5508, 6888 and 7857 ask for.
// Mapping and filtering are address- and port-dependent unless the configuration loosens the filtering.
nf nat {
  port inside: wire | host | vf;
  port outside: wire;

  config ext_first: ipv4 = 203.0.113.1;    // the external addresses, first to last
  config ext_last: ipv4 = 203.0.113.1;
  config first_port: u16 = 1024;           // external ports and ICMP identifiers, first to last
  config last_port: u16 = 65535;
  config capacity: u32 = 64512;
  config router: ipv4 = 10.0.0.1;          // where ICMP errors to the inside come from
  config strict_tcp: bool = true;          // only a SYN opens a TCP mapping
  config filter_address: bool = true;      // RFC 4787 REQ-8: replies only from addresses (and ports) written to
  config filter_port: bool = true;
  config inbound_refresh: bool = true;     // RFC 4787 REQ-6: inbound packets may refresh

  const ICMP: u8 = 1;
  const TCP: u8 = 6;
  const ECHO_REPLY: u8 = 0;
  const ECHO_REQUEST: u8 = 8;
  const TIMESTAMP: u8 = 13;
  const TIMESTAMP_REPLY: u8 = 14;
  const ROCE: u16 = 4791;

  // What a TCP mapping has seen.
  const SYN_OUT: u8 = 1;
  const SYN_IN: u8 = 2;
  const SYN_BOTH: u8 = 3;
  const FIN_OUT: u8 = 4;
  const FIN_IN: u8 = 8;
  const FIN_BOTH: u8 = 12;
  const RESET_OUT: u8 = 16;
  const RESET_IN: u8 = 32;
  const RESET: u8 = 48;

  struct Flow { src: ipv4, sp: u16, dst: ipv4, dp: u16, proto: u8 }
  struct Endpoint { addr: ipv4, port: u16 }

  pool ext {
    addr: ipv4 in ext_first .. ext_last;
    port: u16 in max(first_port, 1) .. last_port;    // 0 is no port (RFC 4787 REQ-3)
    preserve;
  }

  pair map conns {
    entry { flow: Flow, x: Endpoint = alloc ext, seen: u8 }
    key fwd = flow;
    key rev = x;
    timeout { transitory 240s, established 7440s, udp 300s, icmp 60s } slack 2s;
    capacity capacity;
    full reject;
    exact;
    order strict;
  }

  counter translated_out;
  counter translated_in;
  counter hairpinned;

  fragments track { capacity 4096; timeout 30s; held 3; }
  unparsed drop;
  verify ipv4.checksum;

  fn is_external(addr: ipv4) -> bool {
    return addr >= ext_first && addr <= ext_last;
  }

  // RFC 4787 REQ-2: one inside host keeps one external address as long as its ports last.
  fn paired(src: ipv4) -> ipv4 {
    let addresses = u32(ext_last) - u32(ext_first) + 1;
    return ipv4(u32(ext_first) + u32(src) % addresses);
  }

  // RFC 4787 REQ-4: a port outside the external range keeps at least its parity.
  fn preferred(port: u16) -> u16 {
    let low = port < first_port ? first_port + ((port ^ first_port) & 1) : port;
    return low > last_port ? last_port - ((low ^ last_port) & 1) : low;
  }

  fn decrement_ttl(p, source: ipv4) {
    if p.ip.ttl <= 1 { reject "TTL expired" with icmp(11, 0) from source; }
    p.ip.ttl = p.ip.ttl - 1;
  }

  // RFC 5382 REQ-5 and RFC 7857 section 2: a FIN both ways or a reset leaves the transitory time-out.
  fn is_over(seen: u8) -> bool { return (seen & RESET) != 0 || (seen & FIN_BOTH) == FIN_BOTH; }

  fn refresh_tcp(e, seen: u8) {
    e.seen = seen;
    if (seen & SYN_BOTH) == SYN_BOTH && !is_over(seen) { touch e as established; } else { touch e as transitory; }
  }

  // A SYN starts a finished mapping anew. A side that goes on sending did not believe the other's reset (RFC 5961).
  fn note_tcp(e, p, syn: u8, fin: u8, reset: u8, other_reset: u8) {
    let anew = p.tcp.syn && !p.tcp.ack && is_over(e.seen);
    let before = anew ? 0 : p.tcp.rst ? e.seen : e.seen & ~other_reset;
    refresh_tcp(e, before | (p.tcp.syn ? syn : 0) | (p.tcp.fin ? fin : 0) | (p.tcp.rst ? reset : 0));
  }

  fn refresh_out(e, p) {
    if p is tcp { note_tcp(e, p, SYN_OUT, FIN_OUT, RESET_OUT, RESET_IN); } else { touch e as udp; }
  }

  fn refresh_in(e, p) {
    if p is tcp { note_tcp(e, p, SYN_IN, FIN_IN, RESET_IN, RESET_OUT); } else { if inbound_refresh { touch e as udp; } }
  }

  // Refreshes a mapping by a packet that belongs to no connection of its own.
  fn keep(e) {
    if e.flow.proto == TCP { refresh_tcp(e, e.seen); } else { touch e as udp; }
  }

  fn send_out(p, e) {
    p.ip.src = e.x.addr;
    p.l4.sport = e.x.port;
    count translated_out;
    forward outside;
  }

  // RFC 4787 REQ-9: the target of a hairpin is whoever owns the external endpoint; the source becomes ours.
  fn send_hairpin(p, e, owner) {
    p.ip.src = e.x.addr;
    p.l4.sport = e.x.port;
    p.ip.dst = owner.flow.src;
    p.l4.dport = owner.flow.sp;
    count hairpinned;
    forward inside;
  }

  // What the mapping that an outbound packet opens has seen; TCP that may not open one is dropped.
  fn initial(p) -> u8 {
    var seen: u8 = 0;
    if p is tcp {
      let opens = p.tcp.syn && !p.tcp.ack;
      if !opens && (strict_tcp || p.tcp.rst) { drop "TCP without mapping"; }
      seen = opens ? SYN_OUT : SYN_BOTH;
    }
    return seen;
  }

  fn outbound(p, k) {
    lookup conns.fwd[k] {
      hit e {
        refresh_out(e, p);
        send_out(p, e);
      }
      miss {
        let seen = initial(p);
        if p is tcp {
          insert conns { flow: k, seen: seen } as transitory prefer addr = paired(k.src), port = preferred(k.sp) {
            ok e { send_out(p, e); }
            full { reject "no free mapping" with icmp(3, 13) from router; }
          }
        } else {
          insert conns { flow: k, seen: seen } as udp prefer addr = paired(k.src), port = preferred(k.sp) {
            ok e { send_out(p, e); }
            full { reject "no free mapping" with icmp(3, 13) from router; }
          }
        }
      }
    }
  }

  fn hairpin(p, k) {
    lookup conns.rev[(k.dst, k.dp)] {
      hit owner {
        if owner.flow.proto != k.proto { drop "hairpin without mapping"; }
        // An answer comes from the endpoint that was written to, not from a new one.
        lookup conns.rev[(owner.flow.dst, owner.flow.dp)] {
          hit own {
            if own.flow.src == k.src && own.flow.sp == k.sp && own.flow.proto == k.proto {
              keep(own);
              refresh_in(owner, p);
              send_hairpin(p, own, owner);
            }
          }
        }
        lookup conns.fwd[k] {
          hit e {
            refresh_out(e, p);
            keep(owner);
            send_hairpin(p, e, owner);
          }
          miss {
            let seen = initial(p);
            if p is tcp {
              insert conns { flow: k, seen: seen } as transitory prefer addr = paired(k.src), port = preferred(k.sp) {
                ok e { keep(owner); send_hairpin(p, e, owner); }
                full { reject "no free mapping" with icmp(3, 13) from router; }
              }
            } else {
              insert conns { flow: k, seen: seen } as udp prefer addr = paired(k.src), port = preferred(k.sp) {
                ok e { keep(owner); send_hairpin(p, e, owner); }
                full { reject "no free mapping" with icmp(3, 13) from router; }
              }
            }
          }
        }
      }
      miss { drop "hairpin without mapping"; }
    }
  }

  on inside(p: eth/ipv4/(tcp|udp)) {
    // A translated RoCEv2 packet would need a new invariant CRC, which is not computed yet.
    if p.l4.dport == ROCE { drop "RoCEv2 cannot be translated"; }
    decrement_ttl(p, router);
    let k = Flow(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport, p.ip.proto);
    if is_external(p.ip.dst) { hairpin(p, k); } else { outbound(p, k); }
  }

  on outside(p: eth/ipv4/(tcp|udp)) {
    decrement_ttl(p, ext_first);
    lookup conns.rev[(p.ip.dst, p.l4.dport)] {
      hit e {
        let from_peer = (e.flow.dst == p.ip.src || !filter_address) && (e.flow.dp == p.l4.sport || !filter_port);
        if e.flow.proto != p.ip.proto || !from_peer { drop "filtered"; }
        refresh_in(e, p);
        p.ip.dst = e.flow.src;
        p.l4.dport = e.flow.sp;
        count translated_in;
        forward inside;
      }
      miss { drop "no mapping"; }
    }
  }

  // ICMP queries: the identifier stands in for the port (RFC 5508 REQ-1).
  on inside(p: eth/ipv4/icmp) {
    if p.icmp.type != ECHO_REQUEST && p.icmp.type != TIMESTAMP { drop "ICMP type not translated"; }
    decrement_ttl(p, router);
    let k = Flow(p.ip.src, p.icmp.id, p.ip.dst, 0, ICMP);
    lookup conns.fwd[k] {
      hit e {
        touch e as icmp;
        p.ip.src = e.x.addr;
        p.icmp.id = e.x.port;
        count translated_out;
        forward outside;
      }
      miss {
        insert conns { flow: k, seen: 0 } as icmp prefer addr = paired(k.src), port = preferred(k.sp) {
          ok e {
            p.ip.src = e.x.addr;
            p.icmp.id = e.x.port;
            count translated_out;
            forward outside;
          }
          full { reject "no free mapping" with icmp(3, 13) from router; }
        }
      }
    }
  }

  on outside(p: eth/ipv4/icmp) {
    if p.icmp.type != ECHO_REPLY && p.icmp.type != TIMESTAMP_REPLY { drop "ICMP type not translated"; }
    decrement_ttl(p, ext_first);
    lookup conns.rev[(p.ip.dst, p.icmp.id)] {
      hit e {
        if e.flow.proto != ICMP || (e.flow.dst != p.ip.src && filter_address) { drop "filtered"; }
        if inbound_refresh { touch e as icmp; }
        p.ip.dst = e.flow.src;
        p.icmp.id = e.flow.sp;
        count translated_in;
        forward inside;
      }
      miss { drop "no mapping"; }
    }
  }

  // ICMP errors are led by the packet they quote; they neither refresh nor delete (RFC 5508 REQ-4 to REQ-7).
  on outside(p: eth/ipv4/icmp/quoted/ipv4/(tcp|udp)) {
    decrement_ttl(p, ext_first);
    lookup conns.rev[(p.quoted.ip.src, p.quoted.l4.sport)] {
      hit e {
        let same = e.flow.dst == p.quoted.ip.dst && e.flow.dp == p.quoted.l4.dport;
        if !same || e.flow.proto != p.quoted.ip.proto { drop "ICMP error without mapping"; }
        p.quoted.ip.src = e.flow.src;
        p.quoted.l4.sport = e.flow.sp;
        p.ip.dst = e.flow.src;
        forward inside;
      }
      miss { drop "ICMP error without mapping"; }
    }
  }

  on outside(p: eth/ipv4/icmp/quoted/ipv4/icmp) {
    decrement_ttl(p, ext_first);
    lookup conns.rev[(p.quoted.ip.src, p.quoted.icmp.id)] {
      hit e {
        if e.flow.dst != p.quoted.ip.dst || e.flow.proto != ICMP { drop "ICMP error without mapping"; }
        p.quoted.ip.src = e.flow.src;
        p.quoted.icmp.id = e.flow.sp;
        p.ip.dst = e.flow.src;
        forward inside;
      }
      miss { drop "ICMP error without mapping"; }
    }
  }

  // The quoted packet becomes the one that `from` sent to `to`; the error comes from where that was sent.
  fn return_error(p, from: Endpoint, to: Endpoint) {
    p.quoted.ip.src = from.addr;
    p.quoted.l4.sport = from.port;
    p.quoted.ip.dst = to.addr;
    p.quoted.l4.dport = to.port;
    p.ip.src = to.addr;
    p.ip.dst = from.addr;
    forward inside;
  }

  // Both ends of the quoted packet are inside: it is an answer within a hairpin, or a packet of the side that began it.
  fn hairpin_error(p) {
    lookup conns.rev[(p.quoted.ip.src, p.quoted.l4.sport)] {
      hit sender {
        if sender.flow.proto != p.quoted.ip.proto { drop "ICMP error without mapping"; }
        let answered = Flow(p.quoted.ip.dst, p.quoted.l4.dport, p.quoted.ip.src, p.quoted.l4.sport, sender.flow.proto);
        lookup conns.fwd[answered] {
          hit e { return_error(p, Endpoint(sender.flow.src, sender.flow.sp), Endpoint(e.x.addr, e.x.port)); }
        }
        lookup conns.rev[(sender.flow.dst, sender.flow.dp)] {
          hit owner {
            if owner.flow.src != p.quoted.ip.dst || owner.flow.sp != p.quoted.l4.dport {
              drop "ICMP error without mapping";
            }
            return_error(p, Endpoint(sender.flow.src, sender.flow.sp), Endpoint(sender.flow.dst, sender.flow.dp));
          }
          miss { drop "ICMP error without mapping"; }
        }
      }
      miss { drop "ICMP error without mapping"; }
    }
  }

  on inside(p: eth/ipv4/icmp/quoted/ipv4/(tcp|udp)) {
    decrement_ttl(p, router);
    if is_external(p.ip.dst) { hairpin_error(p); }
    lookup conns.fwd[(p.quoted.ip.dst, p.quoted.l4.dport, p.quoted.ip.src, p.quoted.l4.sport, p.quoted.ip.proto)] {
      hit e {
        p.quoted.ip.dst = e.x.addr;
        p.quoted.l4.dport = e.x.port;
        p.ip.src = e.x.addr;
        forward outside;
      }
      miss { drop "ICMP error without mapping"; }
    }
  }

  on inside(p: eth/ipv4/icmp/quoted/ipv4/icmp) {
    decrement_ttl(p, router);
    lookup conns.fwd[(p.quoted.ip.dst, p.quoted.icmp.id, p.quoted.ip.src, 0, ICMP)] {
      hit e {
        p.quoted.ip.dst = e.x.addr;
        p.quoted.icmp.id = e.x.port;
        p.ip.src = e.x.addr;
        forward outside;
      }
      miss { drop "ICMP error without mapping"; }
    }
  }

  on inside(p: eth/ipv4) { drop "protocol not translated"; }
  on outside(p: eth/ipv4) { drop "protocol not translated"; }
  on inside(p: eth) { drop "not IPv4"; }
  on outside(p: eth) { drop "not IPv4"; }
}
