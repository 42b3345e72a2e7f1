// SPDX-License-Identifier: GPL-2.0-only
// The lab's own programs, on the switch end of each host's veth pair and on the core's end of each rack's uplink; they never run on a production host.
// Why there: what the host sends by XDP_TX or redirect never sees a qdisc or tc hook of the host itself.
// A fault is decided by a random number that is a pure function of (seed, index of the frame on this link and
// direction, kind of fault): the same traffic meets the same faults, on however many CPUs.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "fault/fault.h"

/* On a frame that was through the faults already: a copy, or one that the delay line gave back. */
#define LAB_MARK_DONE 0x6d6c6162

enum kind { KIND_LOSS, KIND_DUPLICATE, KIND_REORDER, KIND_CORRUPT, KIND_BIT, KIND_COUNT };

/* Key: 2 * link + direction. Written by mlnet-lab (configuration) and by the programs (counters). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * LAB_LINKS_MAX);
	__type(key, __u32);
	__type(value, struct lab_link);
} lab_links SEC(".maps");

/* splitmix64, as a function of its counter. */
static __always_inline __u64 draw(const struct lab_link *link, __u64 frame, enum kind kind)
{
	__u64 x = link->seed + (frame * KIND_COUNT + kind + 1) * 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static __always_inline int chosen(const struct lab_link *link, __u64 frame, enum kind kind, __u32 ppm)
{
	return ppm && ((draw(link, frame, kind) >> 32) * 1000000 >> 32) < ppm;
}

static __always_inline void count(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

/* Flips one bit behind the Ethernet header. ARP is spared: a real NIC discards damaged frames by their FCS, and
 * an address learnt wrongly would be a fault of quite another kind, long after the frame. */
static __always_inline void corrupt(struct __sk_buff *skb, struct lab_link *link, __u64 frame)
{
	__u64 random = draw(link, frame, KIND_BIT);
	__u32 bytes = skb->len, offset;
	__u8 byte;

	if (skb->protocol == bpf_htons(ETH_P_ARP) || bytes <= ETH_HLEN)
		return;
	offset = ETH_HLEN + (__u32)(random >> 32) % (bytes - ETH_HLEN);
	if (bpf_skb_load_bytes(skb, offset, &byte, 1))
		return;
	byte ^= 1 << (random & 7);
	if (bpf_skb_store_bytes(skb, offset, &byte, 1, 0) == 0)
		count(&link->corrupted);
}

/*
 * ECN of the queue behind this hook, whose length no program can read: of one that drains at the same rate, as phantom queues do
 * (HULL, NSDI 2012). Frames that meet here on two CPUs may count once.
 */
static __always_inline void mark_congestion(struct __sk_buff *skb, struct lab_link *link)
{
	__u64 now = bpf_ktime_get_ns(), empty_at = link->empty_at_ns;

	if (!link->mark_ns)
		return;
	if (empty_at < now)
		empty_at = now;
	if (empty_at - now > link->mark_ns && bpf_skb_ecn_set_ce(skb) == 1)
		count(&link->marked);
	link->empty_at_ns = empty_at + (skb->len * link->ns_per_kib >> 10);
}

/* TC_ACT_UNSPEC: go on to the shaper. */
static __always_inline int disturb(struct __sk_buff *skb, __u32 direction)
{
	__u32 key = 2 * (skb->ifindex - LAB_PORT_IFINDEX) + direction;
	struct lab_link *link = bpf_map_lookup_elem(&lab_links, &key);
	__u64 frame;
	int hold;

	if (!link)
		return TC_ACT_UNSPEC;
	if (skb->mark == LAB_MARK_DONE) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	frame = __sync_fetch_and_add(&link->frames, 1);
	mark_congestion(skb, link);
	if (chosen(link, frame, KIND_LOSS, link->loss_ppm)) {
		count(&link->lost);
		return TC_ACT_SHOT;
	}
	hold = link->hold_all;
	if (chosen(link, frame, KIND_REORDER, link->reorder_ppm)) {
		hold = !hold;
		count(&link->reordered);
	}
	if (hold)
		count(&link->held);
	if (chosen(link, frame, KIND_DUPLICATE, link->duplicate_ppm)) {
		count(&link->duplicated);
		skb->mark = LAB_MARK_DONE;
		if (hold)
			bpf_clone_redirect(skb, LAB_TAP_IFINDEX + key, 0);
		else
			bpf_clone_redirect(skb, skb->ifindex, direction == LAB_TX ? BPF_F_INGRESS : 0);
		skb->mark = 0;
	}
	if (chosen(link, frame, KIND_CORRUPT, link->corrupt_ppm))
		corrupt(skb, link, frame);
	return hold ? (int)bpf_redirect(LAB_TAP_IFINDEX + key, 0) : TC_ACT_UNSPEC;
}

/* Ingress of a port. */
SEC("tc")
int lab_fault_tx(struct __sk_buff *skb)
{
	return disturb(skb, LAB_TX);
}

/* Egress of a port, before its qdisc. */
SEC("tc")
int lab_fault_rx(struct __sk_buff *skb)
{
	return disturb(skb, LAB_RX);
}

/* Ingress of a TAP: the delay line gives a frame back, and it goes on where it was taken off. */
SEC("tc")
int lab_release(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex - LAB_TAP_IFINDEX;

	skb->mark = LAB_MARK_DONE;
	return bpf_redirect(LAB_PORT_IFINDEX + key / 2, key % 2 == LAB_TX ? BPF_F_INGRESS : 0);
}

/* XDP_TX and redirect of a host are lost unless the peer of its NIC has a program; and with one there the host's
 * stack segments its super-packets, so that every frame on the link is one frame. */
SEC("xdp")
int lab_pass(struct xdp_md *ctx __attribute__((unused)))
{
	return XDP_PASS;
}

/* By host. Written by mlnet-lab. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, LAB_HOSTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} lab_ports SEC(".maps");

static __always_inline int is_udp(const struct ethhdr *eth, const void *end)
{
	const struct iphdr *ip = (const void *)(eth + 1);
	const struct ipv6hdr *ip6 = (const void *)(eth + 1);

	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return (const void *)(ip + 1) <= end && ip->protocol == IPPROTO_UDP;
	return eth->h_proto == bpf_htons(ETH_P_IPV6) && (const void *)(ip6 + 1) <= end && ip6->nexthdr == IPPROTO_UDP;
}

/* On the port of an aggregator, where no link has a rate or a fault: its datagrams go to their ports without an
 * sk_buff, as they would in a switch. The lab gives host i the address 02:4d:4c:00:00:(i + 1). */
SEC("xdp")
int lab_forward(struct xdp_md *ctx)
{
	const struct ethhdr *eth = (void *)(long)ctx->data;
	const void *end = (void *)(long)ctx->data_end;

	if ((const void *)(eth + 1) > end || !is_udp(eth, end))
		return XDP_PASS;
	if (eth->h_dest[0] & 1)
		return (int)bpf_redirect_map(&lab_ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
	return (int)bpf_redirect_map(&lab_ports, (__u32)eth->h_dest[5] - 1, XDP_PASS);
}

char _license[] SEC("license") = "GPL";
