#!/bin/sh
# One run over two network namespaces, as over two machines:
#
#     unshare -Urnm sh two_nodes.sh PYTHON CONFIG OUT [STEP]
#
# With STEP, the second node is killed when the run has come that far. Prints the code of each node, and how
# many seconds the first one lived on.
set -eu
python=$1 config=$2 out=$3 step=${4:-}

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
        ip netns exec node-$1 "$python" -m frossl pretrain cifar10-mini \
        --config "$config" --out "$out" --num-nodes 2 --quiet
}
start 0 & first=$!
start 1 & second=$!

if [ -n "$step" ]; then
    until [ "$(wc -l 2>/dev/null < "$out/metrics.jsonl" || echo 0)" -ge "$step" ]; do sleep 0.01; done
    kill -9 $second
fi
killed=$(date +%s)
code=0; wait $first || code=$?
echo "node 0: code $code, $(($(date +%s) - killed)) s"
code=0; wait $second || code=$?
echo "node 1: code $code"
