// NAT as the verified implementations do it: one time-out, no ICMP, no hairpin, TCP state ignored, IPv4 only.
// For comparison with published results; nat.nf is the one to use. What cannot be repeated exactly: they recompute
// checksums in full (here they are updated, so a wrong one stays wrong and a UDP checksum of zero stays zero), and they
// write the external port in the host's byte order.
nf nat {
  port inside: wire | host | vf;
  port outside: wire;

  config ext: ipv4 = 203.0.113.1;
  config first_port: u16 = 1024;
  config last_port: u16 = 65535;

  struct Flow { src: ipv4, sp: u16, dst: ipv4, dp: u16, proto: u8 }

  pool ports: u16 in first_port .. last_port;

  pair map conns {
    entry { flow: Flow, xp: u16 = alloc ports }
    key fwd = flow;
    key rev = xp;
    timeout 60s;
    capacity u32(last_port) - u32(first_port) + 1;
    full reject;
    exact;
    order strict;
  }

  fragments ignore;
  unparsed drop;
  verify none;
  source_routes pass;

  fn send_out(p, e) {
    p.ip.src = ext;
    p.l4.sport = e.xp;
    forward outside;
  }

  on inside(p: eth/ipv4/(tcp|udp)) {
    let k = Flow(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport, p.ip.proto);
    lookup conns.fwd[k] {
      hit e { touch e; send_out(p, e); }
      miss {
        insert conns { flow: k } {
          ok e { send_out(p, e); }
          full { drop "table full"; }
        }
      }
    }
  }

  // The mapping is refreshed before the peer is checked, so a spoofed packet keeps it alive.
  on outside(p: eth/ipv4/(tcp|udp)) {
    lookup conns.rev[p.l4.dport] {
      hit e {
        touch e;
        if e.flow.dst != p.ip.src || e.flow.dp != p.l4.sport || e.flow.proto != p.ip.proto { drop "filtered"; }
        p.ip.dst = e.flow.src;
        p.l4.dport = e.flow.sp;
        forward inside;
      }
      miss { drop "no mapping"; }
    }
  }
}
