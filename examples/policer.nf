// Policer: holds what the wide area network sends to each inside address to a rate, by a token bucket per address.
// IPv6 addresses follow the same rules with a table of their own.
nf policer {
  port lan: wire | host | vf;
  port wan: wire;

  config rate: u64 = 1250000;              // octets per second for each address: 10 Mbit/s
  config burst: u64 = 100000;              // octets; frames larger than this never pass
  config capacity: u32 = 65536;            // addresses of each family

  meter limits4 {
    key dst: ipv4;
    rate rate;
    burst burst;
    capacity capacity;
    full reject;
    exact;
    order strict;
  }

  meter limits6 {
    key dst: ipv6;
    rate rate;
    burst burst;
    capacity capacity;
    full reject;
    exact;
    order strict;
  }

  counter conforming;
  counter exceeding;

  fragments ignore;                        // addresses are in every fragment
  unparsed drop;
  verify ipv4.checksum;

  on lan(p: eth) { forward wan; }

  on wan(p: eth/ipv4) {
    police limits4[p.ip.dst] by p.size {
      green { count conforming; forward lan; }
      red { count exceeding; drop "over the rate"; }
      full { drop "policer table full"; }
    }
  }

  on wan(p: eth/ipv6) {
    police limits6[p.ip.dst] by p.size {
      green { count conforming; forward lan; }
      red { count exceeding; drop "over the rate"; }
      full { drop "policer table full"; }
    }
  }

  on wan(p: eth) { drop "not IP"; }
}
