#!/usr/bin/env bash
# Sets everything up and does the main job once: profile the NAT on the shipped capture, plan it for both NICs. The capture
# shows the hosts with their own addresses, as the inside of a NAT does.
set -eu
cd "$(dirname "$0")/.."
bash dev/setup.sh
mkdir -p out
cora=.venv/bin/cora
map=(--port-map inside=10.0.0.0/24,2001:db8:1::/64 --port-map 'outside=*')
"$cora" profile examples/nat.nf examples/captures/office.pcap "${map[@]}" --captured-at inside -o out/nat.profile.json
for nic in agilio-cx bluefield2; do
  "$cora" plan examples/nat.nf --profile out/nat.profile.json --nic "$nic" --rate 20Mpps -o "out/nat.$nic.json"
done
