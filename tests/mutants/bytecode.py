#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes one rule at a time out of the bytecode, and expects the named tests to fail on what is left.

usage: bytecode.py --build DIR [NAME ...]       DIR: of CMake; names: of mutants, none: all of them
Each mutant is a text that stands once in a file of bpf/, and what it becomes. It is applied to a copy in DIR/mutants; where
the text is not found, or more than once, the mutant has to be written anew and this says so. The tests load the changed
object instead of their own (MLNET_BPF_OBJECT). The last line is "mutants: N passed, N failed".
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
XDP, SLOT, ADMIT = "aggregate/xdp_aggregate.bpf.c", "aggregate/slot.bpf.h", "aggregate/admit.bpf.h"
CHECK, DELIVER, INNER = "aggregate/check.bpf.h", "aggregate/deliver.bpf.h", "aggregate/inner.bpf.h"
PLACE, ADD, EMIT = "aggregate/place.bpf.h", "aggregate/accumulate.bpf.h", "aggregate/emit.bpf.h"
MAC, EGRESS, EVENT = "aggregate/mac.bpf.h", "aggregate/egress.bpf.h", "aggregate/event.bpf.h"
MAC_PROGRAMS = "aggregate/mac_programs.bpf.h"

# name: file, text, what it becomes, tests that must each fail ("program TestSuite.test")
MUTANTS = {
    "arrival_bitmap": (
        XDP, "if (set->contributed & bit) {", "if (0 && set->contributed & bit) {",
        ["bpf_slot SlotTest.duplicate_in_an_incomplete_set_is_held_and_counted_once"]),
    "older_packets_are_stale": (
        SLOT, "if (is_of_epoch && p->seq < set->seq)\n\t\treturn MLNET_V_DROP_STALE;", "",
        ["bpf_slot SlotTest.older_than_the_shadow_copy_is_stale"]),
    "proof_before_claim": (
        SLOT, "set_holds(set, epoch, seq) && (set->proved & members) == members", "set_holds(set, epoch, seq) && members",
        ["bpf_slot SlotTest.set_with_an_unproved_shadow_is_busy"]),
    "shadow_before_claim": (
        SLOT, "if (p->seq >= slots && !set_proved(other, p->epoch, p->seq - slots, members))\n\t\treturn MLNET_V_BUSY;", "",
        ["bpf_slot SlotTest.second_set_of_a_fresh_epoch_waits_for_the_first"]),
    "epoch_of_a_packet": (
        ADMIT, "if (p->epoch != node->epoch)\n\t\treturn MLNET_V_DROP_EPOCH;", "",
        ["bpf_slot SlotTest.new_epoch_finds_every_set_empty", "sim_soak SoakSim.*"]),
    "epoch_of_a_set": (
        SLOT, "set->state != MLNET_SET_EMPTY && set->epoch == epoch && set->seq == seq", "set->state != MLNET_SET_EMPTY && set->seq == seq",
        ["bpf_slot SlotTest.new_epoch_finds_every_set_empty", "sim_soak SoakSim.*"]),
    "epoch_of_a_claim": (
        SLOT, "int is_of_epoch = set->state != MLNET_SET_EMPTY && set->epoch == p->epoch;", "int is_of_epoch = set->state != MLNET_SET_EMPTY;",
        ["bpf_slot SlotTest.new_epoch_finds_every_set_empty"]),
    "shadow_copy": (
        PLACE, "index * 2 + set_index;", "index * 2;",
        ["bpf_slot SlotTest.shadow_copy_answers_while_the_other_set_fills", "sim_soak SoakSim.*"]),
    "check_word_on_arrival": (
        CHECK, "return check == sum + check_mix(p->h0, p->h1, p->h2, t);", "return 1;",
        ["bpf_admit AdmitTest.a_flipped_bit_anywhere_never_reaches_a_sum", "bpf_deliver DeliverTest.damaged_result_is_not_published"]),
    "check_word_of_the_sum": (
        ADD, "set->check = sums_add(p->op, set->check, sum);", "",
        ["bpf_sum SumTest.last_contribution_becomes_the_multicast_result"]),
    "check_word_of_a_maximum": (
        EMIT, "set->check = words_sum(p, words);", ";",
        ["bpf_sum SumTest.max8_takes_the_larger_byte_and_recomputes_the_check_word"]),
    "tag_before_anything_changes": (
        XDP, "if (masked(p->mac_bytes, MLNET_MAC_BYTES) && !mac_take())\n\t\treturn MLNET_V_DROP_MAC;", "",
        ["bpf_mac MacTest.what_has_no_tag_or_one_of_another_key_is_dropped", "bpf_mac MacTest.no_bit_of_a_result_or_a_reply_can_change"]),
    "tag_is_looked_at": (
        MAC_PROGRAMS, "if (!tag_is_right(ctx, p->l3))", "if (0)",
        ["bpf_mac MacTest.whoever_knows_everything_but_the_key_gets_nothing_in"]),
    "tag_counts_once": (
        MAC, "\tif (state)\n\t\tstate->is_right = 0;\n\treturn is_right;", "\treturn is_right;",
        ["bpf_mac MacTest.whoever_knows_everything_but_the_key_gets_nothing_in"]),
    "tag_counts_for_its_packet": (
        MAC, "struct mlnet_mac_state *state = p->mac_bytes ? mac_state() : NULL;", "struct mlnet_mac_state *state = NULL;",
        ["bpf_mac MacTest.a_right_tag_does_not_outlive_its_packet"]),
    "ping_counts_once": (
        EVENT, "return p->seq > last && __sync", "return __sync",
        ["bpf_mac MacTest.a_ping_that_is_repeated_keeps_nobody_alive"]),
    "pong_of_now": (
        EVENT, "& MLNET_SEQ_MASK) < MLNET_PONG_AGE_MAX;", "& MLNET_SEQ_MASK) != 1;",
        ["bpf_mac MacTest.an_answer_that_is_repeated_keeps_no_root_alive"]),
    "pong_goes_down": (
        EVENT, "return pkt_is_from_above(p, node) ? pong_down(p, node, way) : MLNET_V_PONG_SEEN;", "return MLNET_V_PONG_SEEN;",
        ["bpf_inner InnerTest.the_answer_to_a_ping_goes_down_the_way_that_the_ping_came_up", "bpf_mac MacTest.a_partial_sum_goes_up_with_a_tag_and_so_does_a_ping"]),
    "pong_to_the_child_that_asked": (
        EVENT, "__u32 child = masked(way, MLNET_CHILDREN_MAX - 1),", "__u32 child = 0,", ["bpf_inner InnerTest.the_answer_to_a_ping_goes_down_the_way_that_the_ping_came_up"]),
    "pong_has_the_time_that_its_child_gave": (
        EVENT, "ping_rewrite(p, child, link->ping, MLNET_WAY_POP(way));", "ping_rewrite(p, child, p->seq, MLNET_WAY_POP(way));",
        ["bpf_mac MacTest.a_partial_sum_goes_up_with_a_tag_and_so_does_a_ping"]),
    "pong_goes_the_way_that_is_left": (
        EVENT, "ping_rewrite(p, child, link->ping, MLNET_WAY_POP(way));", "ping_rewrite(p, child, link->ping, way);",
        ["bpf_inner InnerTest.the_answer_to_a_ping_goes_down_the_way_that_the_ping_came_up"]),
    "ping_goes_up": (
        EVENT, "return node->flags & MLNET_NODE_INNER ? ping_up(p, node, way) :", "return", ["bpf_inner InnerTest.a_ping_of_a_child_goes_up_as_the_nodes_own"]),
    "tag_is_not_optional": (
        ADMIT, "if (p->mac_bytes != node_mac_bytes(node))", "if (p->mac_bytes > node_mac_bytes(node))",
        ["bpf_mac MacTest.what_has_no_tag_or_one_of_another_key_is_dropped"]),
    "tag_of_what_leaves": (
        XDP, "if (!p->mac_bytes || (action != XDP_TX && action != XDP_REDIRECT))", "if (1)",
        ["bpf_mac MacTest.every_reply_has_a_tag", "sim_mac MacSim.*"]),
    "tag_of_a_copy": (
        EGRESS, "tag_set_of_copy(ctx, l3, &meta->nh);", "meta->nh.sum[0] != 1;",
        ["bpf_mac MacTest.each_copy_has_the_tag_of_its_own_address"]),
    "fingerprint": (
        SLOT, "return set->fingerprint == p->fingerprint &&", "return",
        ["bpf_slot SlotTest.another_collective_in_the_slot_is_a_mismatch_and_an_event"]),
    "inbox_only_forward": (
        DELIVER, "if (newest >= stamp)\n\t\treturn 0;", "",
        ["bpf_deliver DeliverTest.a_cell_is_written_only_by_a_higher_stamp"]),
    "room_for_the_sum": (
        EMIT, "return p->blocks || !p->words;", "return 1;",
        ["bpf_sum SumTest.header_only_last_asks_for_a_packet_that_can_carry_the_sum"]),
    "empty_sum_is_zero": (
        EMIT, "words_clear(p, words);", ";", ["bpf_sum SumTest.nobody_with_data_sums_to_zero_not_to_what_the_slot_held_before"]),
    "forward_again": (
        XDP, "if (set->state == MLNET_SET_COMPLETE && (is_early || has_server)) {", "if (set->state == MLNET_SET_COMPLETE) {",
        ["bpf_inner InnerTest.a_retry_forwards_the_partial_sum_again_but_not_at_once", "sim_trees TreesSim.combining_keeps_the_bits*"]),
    "forward_at_most_once_in_a_while": (
        XDP, "int is_early = now_ns - set->first_ns < node->forward_ns,", "int is_early = 0,",
        ["bpf_inner InnerTest.a_retry_forwards_the_partial_sum_again_but_not_at_once"]),
    "resend_from_above": (
        INNER, "set->state = MLNET_SET_UNSENT;", ";",
        ["bpf_inner InnerTest.a_resend_from_above_sends_the_sum_with_the_next_full_length_packet"]),
    "result_into_its_own_set_only": (
        INNER, "if (!set_holds(set, p->epoch, p->seq) || !set_matches(set, p) ||", "if (!set_matches(set, p) ||",
        ["bpf_inner InnerTest.a_late_result_does_not_touch_the_set_that_took_its_place"]),
    "result_goes_down_once": (
        INNER, "(set->state != MLNET_SET_COMPLETE && set->state != MLNET_SET_UNSENT))", "(set->state == MLNET_SET_FILLING))",
        ["bpf_inner InnerTest.a_result_goes_into_the_inbox_and_down_once_and_answers_retries"]),
    "only_children_contribute": (
        ADMIT, "!(node->members & (1ULL << (p->child & 63))) ||\n\t    !pkt_is_from(p, &node->child_addr[masked(p->child, MLNET_CHILDREN_MAX - 1)]))",
        "!(node->members & (1ULL << (p->child & 63))))", ["bpf_admit AdmitTest.each_wrong_field_has_its_verdict"]),
}

# Changes that nothing can tell, and why:
#   set->proved kept only for those that contribute   without FORCE (rule 8) a set is complete only when all have contributed,
#       and who contributes proves: the two bitmaps are equal until then. tests/model shows what proofs are for today.
#   p->seq != set->seq + 2 * slots, and p->seq >= 2 * slots, dropped from set_claim   follow from the line after them: the other
#       set holds seq - P of this epoch, so this one holds seq - 2P, or nothing of the epoch where seq < 2P.


def apply(name, source):
    file, old, new, _ = MUTANTS[name]
    path = source / file
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"mutants: {name}: the text to change stands {text.count(old)} times in bpf/{file}; write the mutant anew:\n{old}")
    path.write_text(text.replace(old, new))


def compile_mutant(name, build):
    """The changed object, compiled as the build folder compiles the product's."""
    source = build / "mutants" / name / "bpf"
    shutil.rmtree(source.parent, ignore_errors=True)
    shutil.copytree(ROOT / "bpf", source)
    apply(name, source)
    cache = dict(line.split("=", 1) for line in (build / "CMakeCache.txt").read_text().splitlines() if "=" in line and line[0].isalpha())
    clang = next(value for key, value in cache.items() if key.startswith("MLNET_BPF_CLANG:"))
    machine = subprocess.run(["cc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
    target = source.parent / "xdp_aggregate.bpf.o"
    subprocess.run([clang, "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11", "-w", "-I", source, "-I", source / "abi", "-isystem",
                    f"/usr/include/{machine}", "-c", source / XDP, "-o", target], check=True)
    return target


def is_caught(target, test, build):
    program, name = test.split(" ", 1)
    environment = dict(os.environ, MLNET_BPF_OBJECT=str(target))
    out = subprocess.run([build / "tests" / "bin" / program, f"--gtest_filter={name}"], capture_output=True, text=True, env=environment)
    if f"object under test: {target}" not in out.stdout + out.stderr or "[  FAILED  ]" not in out.stdout + out.stderr:
        # A crash counts; neither a test that did not run nor a program that would not load does.
        return out.returncode < 0 and "object under test" in out.stdout + out.stderr
    return "cannot load" not in out.stdout + out.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    unknown = set(options.names) - set(MUTANTS)
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}; there are {', '.join(MUTANTS)}")
    passed = failed = 0
    for name in options.names or MUTANTS:
        target = compile_mutant(name, options.build.resolve())
        for test in MUTANTS[name][3]:
            caught = is_caught(target, test, options.build.resolve())
            print(f"mutant {name}: {'caught by' if caught else 'SURVIVES'} {test}", flush=True)
            passed, failed = passed + caught, failed + (not caught)
    print(f"mutants: {passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
