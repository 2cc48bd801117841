// Every frame that comes in at one port goes out at the other: what receiving and sending cost.
nf nop {
  port lan: wire;
  port wan: wire;
  fragments ignore;
  unparsed drop;
  verify none;
  on lan(p: eth) { forward wan; }
  on wan(p: eth) { forward lan; }
}
