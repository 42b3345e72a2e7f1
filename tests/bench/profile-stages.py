#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Which stage of a packet's way takes how much of the processors' time, of a perf recording of a lab.

    timeout -s INT 6 perf record -a -g -F 3999 -e cpu-clock -o run.data       # while `mlnet-lab perf` is under way
    perf script -i run.data -F comm,tid,ip,sym | tests/bench/profile-stages.py

Counts the engines' threads of mlnet-perf-rank, in which nearly all of the kernel's work runs too, and ksoftirqd. PROFILE.md has results.
"""
import collections
import re
import sys

AT_PROGRAM = "ml_ingress"
# A stack is walked from the leaf outwards: the first symbol that belongs to a stage decides.
STAGES = [(name, re.compile(pattern)) for name, pattern in (
    ("worker: measure exponents", r"MeasureBlocks|MeasureExps|Measure\b"),
    ("worker: quantise", r"Quantize(Blocks|Lanes)|::Quantize$"),
    ("worker: dequantise", r"Dequantize(Blocks|Lanes)|::Dequantize$|LoadLanes"),
    ("worker: seal (copy, check word)", r"wire::(Seal|PayloadSum|Mix)|__memmove_avx|__memcpy"),
    ("worker: look at the inbox", r"IsPublished"),
    ("worker: rest of the engine", r"mlnet::|clock_gettime|std::|hwy|__popcount|__memset_avx"),
    ("bpf: ml_tag", r"ml_tag"),
    ("bpf: lab_forward", r"lab_forward"),
    (AT_PROGRAM, r"bpf_prog_\w+_(ml_ingress|payload_sum)"),
    ("kernel: GSO segmentation", r"gso_segment|skb_segment|udp4_ufo|validate_xmit"),
    ("kernel: sk_buff to XDP buffer (copy, pages)", r"skb_pp_cow_data|veth_convert|skb_copy_bits|page_pool"),
    ("kernel: clones for the broadcast", r"dev_map_enqueue_multi|xdpf_clone"),
    ("kernel: wake a rank", r"bpf_ringbuf|irq_work|try_to_wake|ttwu|__wake_up|pollwake|reschedule_ipi"),
    ("kernel: XDP transmit", r"veth_xdp_(tx|flush|xmit)|veth_ndo_xdp_xmit|bq_|__dev_flush|dev_map_enqueue|xdp_do_"),
    ("kernel: copy from the process", r"ip_make_skb|__ip_append_data|_copy_from_iter|sock_alloc_send|ip_generic_getfrag"),
    ("kernel: free", r"skb_release|kfree_skb|consume_skb|xdp_return|sock_wfree|free_skb|skb_attempt_defer"),
    ("kernel: veth_xmit", r"veth_xmit|veth_forward_skb"),
    ("kernel: NAPI of veth", r"veth_poll|veth_xdp_rcv|__napi_poll"),
    ("kernel: bridge", r"\bbr_|__br_"),
    ("kernel: net_rx, backlog", r"process_backlog|net_rx_action|__netif_receive|netif_rx|enqueue_to_backlog"),
    ("kernel: queues", r"__dev_queue_xmit|sch_direct_xmit|__qdisc_run|dev_hard_start"),
    ("kernel: UDP, IP", r"udp_send|ip_send_skb|ip_output|ip_finish|udp_sendmsg|___?_?sys_sendmsg|ip_route"),
    ("kernel: sleep and switch", r"do_sys_poll|ppoll|schedule|finish_task|bpf_map_poll|__pollwait|eventfd_poll"),
    ("kernel: page faults", r"page_fault|handle_mm"),
    ("kernel: interrupts", r"sysvec|irqentry|asm_"),
    ("kernel: system calls, their frame", r"do_syscall|entry_SYSCALL"),
)]
NOT_MEASURED = re.compile(r"mlnet::perf|scalbn")  # inputs and checks, before and after the timed part


def place_of_program(stack, at):
    """The aggregator's program meets sk_buffs, that of a rank's host frames that were sent by XDP."""
    where = "aggregator" if any("veth_xdp_rcv_skb" in symbol for symbol in stack[at:]) else "host"
    return f"bpf: {AT_PROGRAM} at the {where}" + (", verify" if "payload_sum" in stack[at] else "")


def stage_of(stack):
    if any(NOT_MEASURED.search(symbol) for symbol in stack):
        return None
    for at, symbol in enumerate(stack):
        for name, pattern in STAGES:
            if pattern.search(symbol):
                return place_of_program(stack, at) if name == AT_PROGRAM else name
    return "other"


def samples_of(lines):
    """(thread, stack from the leaf) of each sample."""
    head, stack = None, []
    for line in lines:
        if not line.strip():
            if head:
                yield head, stack
            head, stack = None, []
        elif line[0].isspace():
            stack.append(line.split(None, 1)[1].strip())
        else:
            head = line.strip()
    if head:
        yield head, stack


def main():
    samples = list(samples_of(sys.stdin))
    engines = {head for head, stack in samples
               if head.startswith("mlnet-perf-rank") and any("udp_sendmsg" in symbol for symbol in stack)}
    counted = collections.Counter()
    for head, stack in samples:
        stage = stage_of(stack) if head in engines or head.startswith("ksoftirqd") else None
        if stage:
            counted[stage] += 1
    total = counted.total()
    for stage, count in counted.most_common():
        print(f"{100 * count / total:6.2f} %  {stage}")
    print(f"{total} samples")


if __name__ == "__main__":
    main()
