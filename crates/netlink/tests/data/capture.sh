#!/bin/sh -e
# Makes all captures of this folder anew: unshare -n ./capture.sh KUBE4 KUBE6 OWN
# KUBE4 and KUBE6 are iptables-save texts of a kube-proxy node.
# OWN is what `cargo run -p netlink --example own_table` writes.
# Needs root, iptables 1.8.9 (nf_tables), nft, ipset, conntrack, python3. Changes rules of the namespace it runs in.
kube4=$1 kube6=$2 own=$3
save() { "$1-save" | grep -v '^#' | sed 's/\[[0-9]*:[0-9]*\]/[0:0]/' >"$2"; }
ip link set lo up
./capture.py nfacct-new ct_state_invalid_dropped_pkts localhost_nps_accepted_pkts nlx_acct >/dev/null
ipset create NLX-SET hash:ip,port
ipset create NLX-SET6 hash:ip,port family inet6

iptables-restore <"$kube4"
ip6tables-restore <"$kube6"
save iptables kube.v4.rules
save ip6tables kube.v6.rules
./capture.py dump getrule ip kube.v4.bin
./capture.py dump getrule ip6 kube.v6.bin
./capture.py dump getrule ip chain-rules.bin table=nat chain=KUBE-POSTROUTING
./capture.py dump getchain ip chains.bin
./capture.py dump gettable any tables.bin
./capture.py getgen generation.bin
./capture.py nfacct-get nfacct.bin
./capture.py error error.bin
./capture.py error-text error-text.bin
./capture.py error-generation error-generation.bin
./capture.py ack ack.bin
./capture.py events events.bin sh -c '
    iptables -w -t nat -N NLX-ONE
    iptables -w -t nat -A NLX-ONE -p tcp -j ACCEPT
    iptables -w -t nat -D NLX-ONE 1
    iptables -w -t nat -X NLX-ONE
    nft add table inet nlx-trace
    nft delete table inet nlx-trace'

# A packet to a service from the node itself, traced; then connections to list.
ip link add nlxd type veth peer name nlxe
ip addr add 10.244.9.1/24 dev nlxd
ip link set nlxd up
ip link set nlxe up
ip route add default dev nlxd
iptables -t mangle -A OUTPUT -d 10.1.0.10 -j MARK --set-xmark 0x1/0x1
nft -f - <<'NFT'
table inet nlx-trace {
    chain out {
        type filter hook output priority -301
        ip daddr 10.1.0.10 meta nftrace set 1
        ip6 daddr ::1 tcp flags syn meta nftrace set 1
    }
}
NFT
./capture.py events trace.bin python3 -c '
import socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.sendto(b"x", ("10.1.0.10", 53))
server = socket.create_server(("::1", 4444), family=socket.AF_INET6)
client = socket.create_connection(("::1", 4444))'
nft delete table inet nlx-trace
ip6tables -t filter -A INPUT -m conntrack --ctstate NEW -j ACCEPT
python3 -c '
import socket, subprocess
server = socket.create_server(("::1", 4444), family=socket.AF_INET6)
client = socket.create_connection(("::1", 4444))
ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
ping.sendto(bytes.fromhex("0800f6ec01020011"), ("127.0.0.1", 0))
subprocess.run(["./capture.py", "ct-dump", "any", "conntrack.bin"], check=True)
subprocess.run("conntrack -L -o extended,id; conntrack -L -f ipv6 -o extended,id", shell=True, check=True)' >conntrack.txt

iptables-restore <forms.v4.rules
ip6tables-restore <forms.v6.rules
save iptables forms.v4.rules
save ip6tables forms.v6.rules
./capture.py ipset-name 1 ipset-name.bin
./capture.py dump getrule ip forms.v4.bin
./capture.py dump getrule ip6 forms.v6.bin

nft -f native.nft
nft list table inet nlx-native >native.txt
./capture.py dump getrule inet native.bin

./capture.py send "$own" own-table.ack.bin
nft list table inet nlx-own >own-table.txt
./capture.py dump getrule inet own-table.bin table=nlx-own

# One datagram that legacy traces, from the host through lo back to it; nothing of nf_tables is in its way.
nft flush ruleset
ip addr add 10.8.8.8/32 dev lo
ip route add 10.9.9.0/24 dev lo
iptables-legacy-restore legacy-trace.rules
echo nfnetlink_log >/proc/sys/net/netfilter/nf_log/2
./capture.py nflog legacy-trace.bin python3 -c '
import socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.sendto(b"hi\n", ("10.9.9.9", 53))'
