// Stateful firewall: what the inside opens may be answered, everything else from the outside is dropped.
// IPv4 and IPv6 follow the same rules, each with its own table. Connections are tracked as Linux and Cilium do it
// (closing, re-opening); ICMP errors about a tracked connection pass as related to it.
nf firewall {
  port inside: wire | host | vf;
  port outside: wire;

  config capacity: u32 = 65536;           // connections of each family
  config pass_arp: bool = true;           // forward ARP, IPv6 neighbour discovery and router messages
  config pass_discovery: bool = true;

  const ICMP: u8 = 1;
  const TCP: u8 = 6;
  const ICMP6: u8 = 58;

  // What a TCP connection has seen.
  const SYN_OUT: u8 = 1;
  const SYN_IN: u8 = 2;
  const SYN_BOTH: u8 = 3;
  const CLOSE_OUT: u8 = 4;
  const CLOSE_IN: u8 = 8;
  const CLOSE_BOTH: u8 = 12;
  const DATA: u8 = 16;                    // a segment without SYN
  const RESET_OUT: u8 = 32;
  const RESET_IN: u8 = 64;
  const RESET: u8 = 96;

  struct Flow4 { src: ipv4, sp: u16, dst: ipv4, dp: u16, proto: u8 }
  struct Flow6 { src: ipv6, sp: u16, dst: ipv6, dp: u16, proto: u8 }

  map conns4 {
    entry { flow: Flow4, seen: u8 }
    key = flow;
    timeout { opening 60s, established 21600s, other 60s, closed 10s } slack 1s;
    capacity capacity;
    full pass;
    exact;
    order strict;
  }

  map conns6 {
    entry { flow: Flow6, seen: u8 }
    key = flow;
    timeout { opening 60s, established 21600s, other 60s, closed 10s } slack 1s;
    capacity capacity;
    full pass;
    exact;
    order strict;
  }

  // Rules for traffic from the inside; the first that matches decides, none lets it pass.
  acl rules4 {
    key (src: ipv4 ternary, dst: ipv4 ternary, proto: u8 ternary, dport: u16 range);
    value { permit: bool }
    entries {
      (any, 192.0.2.0/24, any, any) -> { permit: false };            // TEST-NET-1
      (any, any, 17, 19 .. 19) -> { permit: false };                 // chargen
      (any, any, 6, 25 .. 25) -> { permit: false };                  // mail leaves by the relay only
    }
    capacity 1024;
  }

  // Sources that may never speak to the inside, replies included (RFC 6890 and our own block list).
  lpm blocked4 {
    key src: ipv4;
    value { listed: bool }
    entries {
      0.0.0.0/8 -> { listed: true };
      127.0.0.0/8 -> { listed: true };
      240.0.0.0/4 -> { listed: true };
    }
    capacity 4096;
  }

  lpm blocked6 {
    key src: ipv6;
    value { listed: bool }
    entries {
      ::1/128 -> { listed: true };
      ff00::/8 -> { listed: true };
    }
    capacity 4096;
  }

  counter opened;
  counter untracked;
  counter related;

  fragments track { capacity 4096; timeout 30s; held 3; }
  unparsed drop;
  verify ipv4.checksum;

  fn closing(seen: u8) -> bool { return (seen & CLOSE_BOTH) == CLOSE_BOTH || (seen & RESET) != 0; }

  // A reset closes the connection. Where the handshake was seen both ways it may be a forged one: when the side it was
  // sent to goes on sending, that side did not believe it (RFC 5961) and the connection lives.
  fn after_tcp(e, p, syn: u8, close: u8, reset: u8, other_reset: u8) -> u8 {
    let anew = p.tcp.syn && !p.tcp.ack && closing(e.seen);
    let before = anew ? 0 : p.tcp.rst ? e.seen : e.seen & ~other_reset;
    let both_syn = (before & SYN_BOTH) == SYN_BOTH;
    let over = p.tcp.rst ? (both_syn ? reset : CLOSE_BOTH) : 0;
    return before | (p.tcp.syn ? syn : DATA) | (p.tcp.fin ? close : 0) | over;
  }

  // A closed connection keeps its short life whatever still arrives; only a SYN re-opens it.
  fn refresh_tcp(e, next: u8) {
    let was_closed = closing(e.seen);
    let is_closed = closing(next);
    e.seen = next;
    if is_closed {
      if !was_closed { touch e as closed; }
    } else {
      if (next & DATA) != 0 { touch e as established; } else { touch e as opening; }
    }
  }

  fn track_out(e, p) {
    if p is tcp { refresh_tcp(e, after_tcp(e, p, SYN_OUT, CLOSE_OUT, RESET_OUT, RESET_IN)); } else { touch e as other; }
  }

  fn track_in(e, p) {
    if p is tcp { refresh_tcp(e, after_tcp(e, p, SYN_IN, CLOSE_IN, RESET_IN, RESET_OUT)); } else { touch e as other; }
  }

  // The first packet of a TCP connection; one from the middle of a connection opens it too.
  fn first_tcp(p) -> u8 {
    let reset = p.tcp.rst ? CLOSE_BOTH : 0;
    return (p.tcp.syn ? SYN_OUT : DATA) | (p.tcp.fin ? CLOSE_OUT : 0) | reset;
  }

  fn admit4(p, dport: u16) {
    lookup rules4[(p.ip.src, p.ip.dst, p.ip.proto, dport)] {
      hit r { if !r.permit { drop "denied by rule"; } }
    }
  }

  fn admitted4(p) {
    lookup blocked4[p.ip.src] { hit b { if b.listed { drop "blocked source"; } } }
  }

  fn admitted6(p) {
    lookup blocked6[p.ip.src] { hit b { if b.listed { drop "blocked source"; } } }
  }

  on inside(p: eth/ipv4/(tcp|udp)) {
    admit4(p, p.l4.dport);
    let k = Flow4(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport, p.ip.proto);
    lookup conns4[k] {
      hit e { track_out(e, p); forward outside; }
      miss {
        if p is tcp {
          let seen = first_tcp(p);
          if closing(seen) { count untracked; forward outside; }
          if (seen & DATA) != 0 {
            insert conns4 { flow: k, seen: seen } as established {
              ok { count opened; }
              full { count untracked; }
            }
          } else {
            insert conns4 { flow: k, seen: seen } as opening {
              ok { count opened; }
              full { count untracked; }
            }
          }
          forward outside;
        }
        insert conns4 { flow: k, seen: 0 } as other {
          ok { count opened; }
          full { count untracked; }
        }
        forward outside;
      }
    }
  }

  on outside(p: eth/ipv4/(tcp|udp)) {
    admitted4(p);
    lookup conns4[Flow4(p.ip.dst, p.l4.dport, p.ip.src, p.l4.sport, p.ip.proto)] {
      hit e { track_in(e, p); forward inside; }
      miss { drop "not opened from inside"; }
    }
  }

  on inside(p: eth/ipv4/icmp) {
    admit4(p, 0);
    if p.icmp.type != 8 { drop "ICMP type not tracked"; }
    let k = Flow4(p.ip.src, p.icmp.id, p.ip.dst, 0, ICMP);
    lookup conns4[k] {
      hit e { touch e as other; forward outside; }
      miss {
        insert conns4 { flow: k, seen: 0 } as other {
          ok { count opened; }
          full { count untracked; }
        }
        forward outside;
      }
    }
  }

  on outside(p: eth/ipv4/icmp) {
    admitted4(p);
    if p.icmp.type != 0 { drop "ICMP type not tracked"; }
    lookup conns4[Flow4(p.ip.dst, p.icmp.id, p.ip.src, 0, ICMP)] {
      hit e { touch e as other; forward inside; }
      miss { drop "not opened from inside"; }
    }
  }

  // Related errors: from outside they quote what the inside sent, from inside what the outside answered.
  on outside(p: eth/ipv4/icmp/quoted/ipv4/(tcp|udp)) {
    admitted4(p);
    let k = Flow4(p.quoted.ip.src, p.quoted.l4.sport, p.quoted.ip.dst, p.quoted.l4.dport, p.quoted.ip.proto);
    lookup conns4[k] {
      hit { count related; forward inside; }
      miss { drop "ICMP error about nothing tracked"; }
    }
  }

  on outside(p: eth/ipv4/icmp/quoted/ipv4/icmp) {
    admitted4(p);
    lookup conns4[Flow4(p.quoted.ip.src, p.quoted.icmp.id, p.quoted.ip.dst, 0, ICMP)] {
      hit { count related; forward inside; }
      miss { drop "ICMP error about nothing tracked"; }
    }
  }

  on inside(p: eth/ipv4/icmp/quoted/ipv4/(tcp|udp)) {
    admit4(p, 0);
    let k = Flow4(p.quoted.ip.dst, p.quoted.l4.dport, p.quoted.ip.src, p.quoted.l4.sport, p.quoted.ip.proto);
    lookup conns4[k] {
      hit { count related; forward outside; }
      miss { drop "ICMP error about nothing tracked"; }
    }
  }

  on inside(p: eth/ipv4/icmp/quoted/ipv4/icmp) {
    admit4(p, 0);
    lookup conns4[Flow4(p.quoted.ip.dst, p.quoted.icmp.id, p.quoted.ip.src, 0, ICMP)] {
      hit { count related; forward outside; }
      miss { drop "ICMP error about nothing tracked"; }
    }
  }

  on inside(p: eth/ipv6/(tcp|udp)) {
    let k = Flow6(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport, p.ip.proto);
    lookup conns6[k] {
      hit e { track_out(e, p); forward outside; }
      miss {
        if p is tcp {
          let seen = first_tcp(p);
          if closing(seen) { count untracked; forward outside; }
          if (seen & DATA) != 0 {
            insert conns6 { flow: k, seen: seen } as established {
              ok { count opened; }
              full { count untracked; }
            }
          } else {
            insert conns6 { flow: k, seen: seen } as opening {
              ok { count opened; }
              full { count untracked; }
            }
          }
          forward outside;
        }
        insert conns6 { flow: k, seen: 0 } as other {
          ok { count opened; }
          full { count untracked; }
        }
        forward outside;
      }
    }
  }

  on outside(p: eth/ipv6/(tcp|udp)) {
    admitted6(p);
    lookup conns6[Flow6(p.ip.dst, p.l4.dport, p.ip.src, p.l4.sport, p.ip.proto)] {
      hit e { track_in(e, p); forward inside; }
      miss { drop "not opened from inside"; }
    }
  }

  // 133 to 137: router and neighbour messages (RFC 4861).
  on inside(p: eth/ipv6/icmp6) {
    if p.icmp6.type >= 133 && p.icmp6.type <= 137 {
      if pass_discovery { forward outside; } else { drop "neighbour discovery"; }
    }
    if p.icmp6.type != 128 { drop "ICMP type not tracked"; }
    let k = Flow6(p.ip.src, p.icmp6.id, p.ip.dst, 0, ICMP6);
    lookup conns6[k] {
      hit e { touch e as other; forward outside; }
      miss {
        insert conns6 { flow: k, seen: 0 } as other {
          ok { count opened; }
          full { count untracked; }
        }
        forward outside;
      }
    }
  }

  on outside(p: eth/ipv6/icmp6) {
    if p.icmp6.type >= 133 && p.icmp6.type <= 137 {
      if pass_discovery { forward inside; } else { drop "neighbour discovery"; }
    }
    admitted6(p);
    if p.icmp6.type != 129 { drop "ICMP type not tracked"; }
    lookup conns6[Flow6(p.ip.dst, p.icmp6.id, p.ip.src, 0, ICMP6)] {
      hit e { touch e as other; forward inside; }
      miss { drop "not opened from inside"; }
    }
  }

  on outside(p: eth/ipv6/icmp6/quoted/ipv6/(tcp|udp)) {
    admitted6(p);
    let k = Flow6(p.quoted.ip.src, p.quoted.l4.sport, p.quoted.ip.dst, p.quoted.l4.dport, p.quoted.ip.proto);
    lookup conns6[k] {
      hit { count related; forward inside; }
      miss { drop "ICMP error about nothing tracked"; }
    }
  }

  on outside(p: eth/ipv6/icmp6/quoted/ipv6/icmp6) {
    admitted6(p);
    lookup conns6[Flow6(p.quoted.ip.src, p.quoted.icmp6.id, p.quoted.ip.dst, 0, ICMP6)] {
      hit { count related; forward inside; }
      miss { drop "ICMP error about nothing tracked"; }
    }
  }

  on inside(p: eth/ipv6/icmp6/quoted/ipv6/(tcp|udp)) {
    let k = Flow6(p.quoted.ip.dst, p.quoted.l4.dport, p.quoted.ip.src, p.quoted.l4.sport, p.quoted.ip.proto);
    lookup conns6[k] {
      hit { count related; forward outside; }
      miss { drop "ICMP error about nothing tracked"; }
    }
  }

  on inside(p: eth/ipv6/icmp6/quoted/ipv6/icmp6) {
    lookup conns6[Flow6(p.quoted.ip.dst, p.quoted.icmp6.id, p.quoted.ip.src, 0, ICMP6)] {
      hit { count related; forward outside; }
      miss { drop "ICMP error about nothing tracked"; }
    }
  }

  on inside(p: eth/arp) { if pass_arp { forward outside; } else { drop "ARP"; } }
  on outside(p: eth/arp) { if pass_arp { forward inside; } else { drop "ARP"; } }
  on inside(p: eth/ipv4) { drop "protocol not tracked"; }
  on outside(p: eth/ipv4) { drop "protocol not tracked"; }
  on inside(p: eth/ipv6) { drop "protocol not tracked"; }
  on outside(p: eth/ipv6) { drop "protocol not tracked"; }
  on inside(p: eth) { drop "not IP"; }
  on outside(p: eth) { drop "not IP"; }
}
