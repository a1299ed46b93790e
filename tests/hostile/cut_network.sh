#!/bin/sh
# One run over two network namespaces, as over two machines, whose link is cut so that no packet says so:
#
#     unshare -Urnm sh cut_network.sh PYTHON CONFIG OUT STEPS
#
# when the run has recorded STEPS steps. Prints the code of each node and the seconds that it lived on. A node
# that lives on for longer than two minutes is killed.
set -eu
python=$1 config=$2 out=$3 steps=$4

mount -t tmpfs none /run
ip netns add node-0
ip netns add node-1
ip link add link-0 netns node-0 type veth peer name link-1 netns node-1
for node in 0 1; do
    ip -n node-$node addr add 10.77.0.$((node + 1))/24 dev link-$node
    ip -n node-$node link set link-$node up
    ip -n node-$node link set lo up
done

start() {
    MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 NODE_RANK=$1 GLOO_SOCKET_IFNAME=link-$1 exec \
        unshare --uts sh -c "hostname node-$1; exec \"\$@\"" - \
        ip netns exec node-$1 "$python" -m frossl pretrain cifar10-mini \
        --config "$config" --out "$out" --num-nodes 2 --quiet
}
start 0 & first=$!
start 1 & second=$!
until [ "$(wc -l 2>/dev/null < "$out/metrics.jsonl" || echo 0)" -ge "$steps" ]; do
    kill -0 $first
    sleep 0.05
done
ip -n node-0 link set link-0 down
cut=$(date +%s)
(sleep 120; kill -9 $first $second) >/dev/null 2>&1 & killer=$!
code=0; wait $first || code=$?
echo "node 0: code $code, $(($(date +%s) - cut)) s"
code=0; wait $second || code=$?
echo "node 1: code $code, $(($(date +%s) - cut)) s"
kill $killer 2>/dev/null || true
