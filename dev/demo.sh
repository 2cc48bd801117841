#!/usr/bin/env bash
# Sets everything up and does the main job once: profile the NAT on the shipped capture, plan it for both NICs.
set -eu
cd "$(dirname "$0")/.."
echo "setting up (.venv, the first time takes a minute) ..."
bash dev/setup.sh
mkdir -p out
cora=.venv/bin/cora
# The capture was taken on the inside link: replies are translated as the NAT translates.
office=(examples/captures/office.pcap --port-map inside=10.0.0.0/24,2001:db8:1::/64 --port-map 'outside=*'
        --captured-at inside)
"$cora" profile examples/nat.nf "${office[@]}" -o out/nat.profile.json
for nic in agilio-cx bluefield2; do
  echo
  "$cora" plan examples/nat.nf --profile out/nat.profile.json --nic "$nic" --rate 10Mpps -o "out/nat.$nic.json"
done
cat <<'NEXT'

next:  .venv/bin/cora explain out/nat.agilio-cx.json conns            why a table is where it is
       .venv/bin/cora plan --help                                     your own program, capture, NIC and rate
       README.md                                                      the tour
NEXT
