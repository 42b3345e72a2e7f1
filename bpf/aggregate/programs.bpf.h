/* SPDX-License-Identifier: GPL-2.0-only */
/* The places of ml_programs, where a program hands a packet over to another. */
#ifndef MLNET_AGGREGATE_PROGRAMS_BPF_H
#define MLNET_AGGREGATE_PROGRAMS_BPF_H

enum { PROGRAM_INGRESS6, PROGRAM_SERVER, PROGRAM_SERVER6, PROGRAM_INGRESS, PROGRAM_MAC_CHECK, PROGRAM_MAC_SET, PROGRAMS };

#endif /* MLNET_AGGREGATE_PROGRAMS_BPF_H */
