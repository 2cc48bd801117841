// Firewall as the verified implementations do it: one time-out, TCP state ignored, IPv4 TCP and UDP only.
// For comparison with published results; firewall.nf is the one to use.
nf firewall {
  port inside: wire | host | vf;
  port outside: wire;

  config capacity: u32 = 65536;

  struct Flow { src: ipv4, sp: u16, dst: ipv4, dp: u16, proto: u8 }

  map conns {
    entry { flow: Flow }
    key = flow;
    timeout 60s;
    capacity capacity;
    full pass;
    exact;
    order strict;
  }

  fragments ignore;
  unparsed drop;
  verify none;
  source_routes pass;

  on inside(p: eth/ipv4/(tcp|udp)) {
    let k = Flow(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport, p.ip.proto);
    lookup conns[k] {
      hit e { touch e; forward outside; }
      miss {
        insert conns { flow: k } {
          ok { forward outside; }
          full { forward outside; }
        }
      }
    }
  }

  on outside(p: eth/ipv4/(tcp|udp)) {
    lookup conns[Flow(p.ip.dst, p.l4.dport, p.ip.src, p.l4.sport, p.ip.proto)] {
      hit e { touch e; forward inside; }
      miss { drop "not opened from inside"; }
    }
  }
}
