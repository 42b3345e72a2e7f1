// SPDX-License-Identifier: GPL-2.0-only
// For the lab's tests: sends every UDP packet for forward_port on to another host by XDP_TX, as an aggregator sends
// results. Such frames never see a qdisc of this host.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

const volatile __u8 target_mac[ETH_ALEN];
const volatile __u32 target_address; /* network order */
const volatile __u16 forward_port;   /* host order */

SEC("xdp")
int lab_forward(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u32 sum;

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP ||
	    udp->dest != bpf_htons(forward_port))
		return XDP_PASS;
	for (int i = 0; i < ETH_ALEN; i++) {
		eth->h_source[i] = eth->h_dest[i];
		eth->h_dest[i] = target_mac[i];
	}
	ip->saddr = ip->daddr;
	ip->daddr = target_address;
	ip->check = 0;
	sum = 0;
	for (int i = 0; i < 10; i++)
		sum += ((__u16 *)ip)[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = (__u16)~sum;
	udp->check = 0; /* between namespaces it was never computed */
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
