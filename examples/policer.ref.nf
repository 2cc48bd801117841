// Policer as the verified implementation does it: integer tokens, fractions lost, a strict comparison, IPv4 only.
// For comparison with published results; policer.nf is the one to use.
nf policer {
  port lan: wire | host | vf;
  port wan: wire;

  config rate: u64 = 1250000;              // octets per second
  config burst: u64 = 100000;              // octets
  config capacity: u32 = 65536;

  const SECOND: u64 = 1_000_000_000;

  map buckets {
    entry { dst: ipv4, tokens: u64, last: duration }
    key = dst;
    timeout duration(burst * SECOND / rate);
    capacity capacity;
    full reject;
    exact;
    order strict;
  }

  fragments ignore;
  unparsed drop;
  verify none;
  source_routes pass;

  on lan(p: eth) { forward wan; }

  on wan(p: eth/ipv4) {
    let size = u64(p.size);
    lookup buckets[p.ip.dst] {
      hit e {
        let idle = u64(now) - u64(e.last);
        let full_again = idle >= burst * SECOND / rate;
        let earned = full_again ? burst : min(burst, e.tokens + idle * rate / SECOND);
        e.last = now;
        touch e;
        if earned > size {
          e.tokens = earned - size;
          forward lan;
        }
        e.tokens = earned;
        drop "over the rate";
      }
      miss {
        if size > burst { drop "larger than the burst"; }
        insert buckets { dst: p.ip.dst, tokens: burst - size, last: now } {
          ok { forward lan; }
          full { drop "policer table full"; }
        }
      }
    }
  }

  on wan(p: eth) { drop "not IPv4"; }
}
