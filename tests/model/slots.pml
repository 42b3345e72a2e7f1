// SPDX-License-Identifier: Apache-2.0
// The slot protocol as bpf/aggregate and userspace/worker implement it, for spin; README.md says how it is run.
//   inline per stage: set_claim, set_answer, set_complete, slot_take (nodes); the rank's rules are in the guards of main.
// What is not in the code is not in here: FORCE and PROOF (rule 8), POISONED (rule 6), and of rule 9 all but this: each
// host leaves the old epoch when it likes, and what it held of it stays where it was. So a set's proof bitmap equals its
// contributor bitmap; what it is for today is a rank that breaks rule 2 (-DHASTY).
// Contents are ghosts: a packet is named by sender, epoch and seq, and whoever sends checks that its sum is that of
// exactly the ranks below it, each once.

// ---- sizes ----------------------------------------------------------------------------------------------
// SHAPE 0: three ranks on hosts of their own, a root.  1: ranks 0 and 1 on the host of an inner node.
//       2: rank 0 on the host of an inner node, rank 1 on another host below it.  Rank 2 is always the root's child.
#ifndef SHAPE
#define SHAPE 0
#endif
#ifndef P
#define P 1          // slots, each of two sets
#endif
#ifndef K
#define K 3          // seqs in an epoch
#endif
#ifndef EPOCHS
#define EPOCHS 1
#endif
#ifndef MULTICAST
#define MULTICAST 1
#endif
#ifndef HEADERS
#define HEADERS 1    // 1: whether a rank has data for a seq is open, for those below HEADER_SEQS
#endif
#ifndef HEADER_SEQS
#define HEADER_SEQS K
#endif
// LOSSES undefined: what was sent stays in the network for ever, so it may be lost, late, doubled or overtaken without
//   bound; retries too are there from the first sending on, which leaves nothing out: nothing has to be delivered.
// LOSSES n: at most n are lost, DOUBLES n doubled, EARLY n asked for too early; else ranks ask again when nothing else can
//   happen, and must get on.
#ifndef DOUBLES
#define DOUBLES 0
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef ROUNDS_MAX
#define ROUNDS_MAX 3 // of retries without a loss before a rank gets on
#endif
#define ASKS_MAX (2 * RANKS + DOUBLES) // RESENDs without it

#define RANKS 3
#define ROOT 0
#define INNER 1
#define SETS (2 * P)
#define XS (EPOCHS * K)
#define BIT(i) (1 << (i))
#define EPOCH(x) ((x) / K)
#define SEQ(x) ((x) % K)
#if defined(MUTANT_SHADOW)
#define SET_OF(x) ((SEQ(x) % P) * 2)
#else
#define SET_OF(x) ((SEQ(x) % P) * 2 + (SEQ(x) / P) % 2)
#endif
#define CELL_OF(x) ((SEQ(x) % P) * 2 + (SEQ(x) / P) % 2)

#if SHAPE == 0
#define HOSTS 4
#define HOST_OF(r) (r)
#define NODE_OF(r) ROOT
#define CHILD_OF(r) (r)
#define MEMBERS(node) 7
#elif SHAPE == 1
#define HOSTS 3
#define HOST_OF(r) ((r) / 2)
#define IS_INNER_HOST(h) ((h) == 0)
#define HAS_FAN 0
#define IS_ASKED(r) ((r) < 2)
#elif SHAPE == 2
#define HOSTS 4
#define HOST_OF(r) (r)
#define IS_INNER_HOST(h) ((h) == 0)
#define HAS_FAN 1
#define IS_ASKED(r) ((r) == 0)
#endif
#define ROOT_HOST (HOSTS - 1)
#if SHAPE > 0
#define NODE_OF(r) ((r) < 2 -> INNER : ROOT)
#define CHILD_OF(r) ((r) < 2 -> (r) : 1)
#define MEMBERS(node) 3
#define HOST_OF_NODE(node) ((node) == INNER -> 0 : ROOT_HOST)
#else
#define HOST_OF_NODE(node) ROOT_HOST
#define IS_INNER_HOST(h) false
#define IS_ASKED(r) false
#define HAS_FAN 0
#endif
#define IS_BELOW(r, node) ((node) == ROOT || (r) < 2)
#define SUM_OF(node) ((node) == INNER -> 5 : 21) /* two bits a rank: how often it is in */

// ---- state ----------------------------------------------------------------------------------------------
mtype = { EMPTY, FILLING, UNSENT, COMPLETE, RESULT };            // of a set
mtype = { NONE, FROM_RANK, FROM_INNER, TO_HOST, TO_INNER, TO_RANK };  // what happens
typedef Set {
  mtype state = EMPTY;
  byte x;                // epoch and seq as one number
  byte contributed;      // bit per child
  byte proved;
  bool has_data;
  byte sum;              // ghost
  bool is_damaged;       // ghost
};
typedef Node { Set set[SETS]; };
Node node[2];
byte epoch[HOSTS];       // of the job's entry
byte cell[HOSTS * SETS]; // inbox: stamp (x + 1) of the newest result
// Packets on their way, a bit per x.
short up_header[RANKS], up_full[RANKS];
short inner_header, inner_full;
short down[HOSTS], down_group;  // RESULT to a host; multicast one to the inner node's
short resend[RANKS], resend_inner;
// Ranks.
short sent[RANKS], done[RANKS], has_none[RANKS];

byte losses, doubles, early, rounds, asks;

// The packet that is handled: a contribution of m_child to m_node.
mtype m_kind = NONE;
byte m_node, m_child, m_from, m_x, m_set;
bool m_full, m_data, m_damaged, m_first;
byte m_sum, i;

// ---- nodes: bpf/aggregate -------------------------------------------------------------------------------
#define S node[m_node].set[m_set]
#define OTHER node[m_node].set[m_set ^ 1]
#if defined(MUTANT_EPOCH)
#define SAME_EPOCH(a, b) true
#define HOLDS(set_, x_) (set_.state != EMPTY && SEQ(set_.x) == SEQ(x_))
#else
#define SAME_EPOCH(a, b) (EPOCH(a) == EPOCH(b))
#define HOLDS(set_, x_) (set_.state != EMPTY && set_.x == (x_))
#endif
#if defined(MUTANT_PROOF)
#define PROVED(set_, x_) HOLDS(set_, x_)
#else
#define PROVED(set_, x_) (HOLDS(set_, x_) && (set_.proved & MEMBERS(m_node)) == MEMBERS(m_node))
#endif

#if defined(HASTY)
#define KEEPS_RULE_2(r) ((r) != 2)
#else
#define KEEPS_RULE_2(r) true
#endif

// Rule 3. Nobody may still need what is overwritten.
inline set_open() {
  if
  :: S.state != EMPTY && EPOCH(S.x) == EPOCH(m_x) ->
     i = 0;
     do
     :: i < RANKS -> assert(!IS_BELOW(i, m_node) || !KEEPS_RULE_2(i) || (done[i] & BIT(S.x))); i++
     :: else -> break
     od
  :: else
  fi;
  S.state = FILLING; S.x = m_x; S.contributed = 0; S.proved = 0; S.has_data = false; S.sum = 0; S.is_damaged = false
}

inline send_up(x_, is_full) {
  assert(S.sum == SUM_OF(INNER) && !S.is_damaged);
  if
  :: is_full -> inner_full = inner_full | BIT(x_)
  :: else -> inner_header = inner_header | BIT(x_)
  fi
}

inline send_result_to(host) { down[host] = down[host] | BIT(m_x) }

inline send_result_to_all() {
  assert(S.sum == SUM_OF(ROOT) && !S.is_damaged);
#if SHAPE == 0
  send_result_to(0); send_result_to(1); send_result_to(2)
#elif MULTICAST
  down_group = down_group | BIT(m_x);
  send_result_to(1)
#if SHAPE == 2
  ; send_result_to(2)
#endif
#else
  send_result_to(0);
  send_result_to(HOST_OF(2))
#endif
}

// To the child that sent the packet at hand. Where retries are there anyway, ranks need not be asked.
inline ask_for_full() {
  if
  :: m_from == RANKS -> resend_inner = resend_inner | BIT(m_x)
#if defined(LOSSES)
  :: m_from != RANKS -> resend[m_from] = resend[m_from] | BIT(m_x)
#endif
  :: else
  fi
}

inline answer_with_result() {
  assert(S.sum == SUM_OF(m_node) && !S.is_damaged);
  if
  :: m_from == RANKS -> send_result_to(0)
  :: m_from != RANKS && !(m_node == INNER && m_from == 0) -> send_result_to(HOST_OF(m_from))
  :: else /* rank 0 has it: what the inner node holds lies in the inbox of its host */
  fi
}

// What a packet gets whose set is complete.
inline set_answer() {
  if
  :: m_node == INNER && S.state == RESULT -> if :: HAS_FAN -> answer_with_result_from_above() :: else fi
  :: m_node == INNER && S.state != RESULT && !m_full && S.has_data -> ask_for_full()
#if !defined(MUTANT_FORWARD)
  :: m_node == INNER && S.state != RESULT && (m_full || !S.has_data) -> S.state = COMPLETE; send_up(m_x, m_full)
#endif
#if !defined(LOSSES) || defined(MUTANT_FORWARD)
  :: m_node == INNER && S.state == COMPLETE /* too early to send it again: HELD */
#endif
  :: m_node == ROOT && !m_full -> ask_for_full()
  :: m_node == ROOT && m_full && S.state == UNSENT -> S.state = COMPLETE; send_result_to_all()
#if !defined(MUTANT_NO_ANSWER)
  :: m_node == ROOT && m_full && S.state != UNSENT -> answer_with_result()
#else
  :: m_node == ROOT && m_full && S.state != UNSENT
#endif
  fi
}

inline answer_with_result_from_above() {
  if
  :: m_from == 1 -> send_result_to(HOST_OF(1))
  :: else
  fi
}

inline set_complete() {
  if
  :: m_node == ROOT && m_full -> S.state = COMPLETE; send_result_to_all()
  :: m_node == INNER && (m_full || !S.has_data) -> S.state = COMPLETE; send_up(m_x, m_full)
  :: else -> S.state = UNSENT; ask_for_full()
  fi
}

inline set_contribute() {
  assert(S.x == m_x);                          // no epoch or seq but the set's own
  assert((S.sum & m_sum) == 0);                // nobody twice
  S.contributed = S.contributed | BIT(m_child);
  S.sum = S.sum + m_sum;
  S.has_data = S.has_data || m_data;
  S.is_damaged = S.is_damaged || m_damaged;
  if
  :: (S.contributed & MEMBERS(m_node)) == MEMBERS(m_node) -> set_complete()
  :: else
  fi
}

// Whether the set may be overwritten for m_x. Without HASTY nobody is ever told BUSY: that is asserted.
#define OF_EPOCH (S.state != EMPTY && SAME_EPOCH(S.x, m_x))
#if defined(MUTANT_STALE)
#define IS_STALE false
#define IS_NEXT (!OF_EPOCH || SEQ(m_x) != SEQ(S.x))
#else
#define IS_STALE (OF_EPOCH && SEQ(m_x) < SEQ(S.x))
#if defined(MUTANT_SHADOW)
#define IS_NEXT (OF_EPOCH -> SEQ(m_x) == SEQ(S.x) + P : SEQ(m_x) < P)
#else
#define IS_NEXT (OF_EPOCH -> SEQ(m_x) == SEQ(S.x) + 2 * P : SEQ(m_x) < 2 * P)
#endif
#endif
#if defined(MUTANT_STALE) || defined(MUTANT_SHADOW)
#define IS_CLEAR true
#else
#define IS_CLEAR (SEQ(m_x) < P || PROVED(OTHER, m_x - P))
#endif

#if defined(HASTY)
#define BUSY skip
#else
#define BUSY assert(false)
#endif

inline slot_take() {
  m_set = SET_OF(m_x);
  m_first = true;
  if
  :: HOLDS(S, m_x)
  :: !HOLDS(S, m_x) && IS_STALE -> m_first = false
  :: !HOLDS(S, m_x) && !IS_STALE && IS_NEXT && IS_CLEAR -> set_open()
  :: !HOLDS(S, m_x) && !IS_STALE && !(IS_NEXT && IS_CLEAR) -> BUSY; m_first = false
  fi;
  if
  :: m_first ->
     S.proved = S.proved | BIT(m_child);
     if
     :: S.state != FILLING -> set_answer()
#if !defined(MUTANT_ARRIVAL)
     :: S.state == FILLING && (S.contributed & BIT(m_child)) /* HELD */
     :: S.state == FILLING && !(S.contributed & BIT(m_child)) -> set_contribute()
#else
     :: S.state == FILLING -> set_contribute()
#endif
     fi
  :: else
  fi
}

#if defined(MUTANT_EPOCH)
#define IS_ADMITTED(host, x_) true
#else
#define IS_ADMITTED(host, x_) (epoch[host] == EPOCH(x_))
#endif

inline contribution() {
  if
  :: IS_ADMITTED(HOST_OF_NODE(m_node), m_x) -> slot_take()
  :: else
  fi
}

inline from_rank() {
  m_node = NODE_OF(m_from); m_child = CHILD_OF(m_from);
  m_data = m_full && !(has_none[m_from] & BIT(m_x));
  m_sum = 1 << (2 * m_from)
}

inline from_inner() {
  m_node = ROOT; m_child = 0; m_from = RANKS;
  m_data = m_full && !(has_none[0] & has_none[1] & BIT(m_x));
  m_sum = 5
}

// ---- hosts: deliver and inner ---------------------------------------------------------------------------
#if defined(MUTANT_INBOX)
#define IS_NEWER(h, x_) true
#else
#define IS_NEWER(h, x_) (cell[(h) * SETS + CELL_OF(x_)] < (x_) + 1)
#endif
#define OLD cell[(m_from) * SETS + CELL_OF(m_x)]

// Rule 5. Only forward, and nothing is overwritten that a rank here has not read.
inline cell_write() {
  assert(EPOCH(m_x) == epoch[m_from] && OLD <= m_x);
  if
  :: OLD > 0 && EPOCH(OLD - 1) == EPOCH(m_x) ->
     i = 0;
     do
     :: i < RANKS -> assert(HOST_OF(i) != m_from || !KEEPS_RULE_2(i) || (done[i] & BIT(OLD - 1))); i++
     :: else -> break
     od
  :: else
  fi;
  OLD = m_x + 1
}

inline result() {
  m_node = INNER; m_set = SET_OF(m_x);
  if
  :: IS_ADMITTED(m_from, m_x) ->
     if
     :: IS_INNER_HOST(m_from) && HOLDS(S, m_x) && (S.state == COMPLETE || S.state == UNSENT) ->
        S.state = RESULT;
        if
        :: HAS_FAN && m_full -> send_result_to(1)
        :: else /* none, or reached by multicast */
        fi
     :: else
     fi;
     if
     :: IS_NEWER(m_from, m_x) -> cell_write()
     :: else
     fi
  :: else
  fi
}

// The node above has no room for the partial sum.
inline resend_at_inner() {
  m_node = INNER; m_set = SET_OF(m_x);
  if
  :: IS_ADMITTED(0, m_x) ->
     if
     :: HOLDS(S, m_x) && S.state == COMPLETE -> S.state = UNSENT
     :: else
     fi;
     i = 0;
     do
     :: i < RANKS -> if :: IS_ASKED(i) -> ask_again(i, m_x) :: else fi; i++
     :: else -> break
     od
  :: else
  fi
}

// ---- ranks: userspace/worker ----------------------------------------------------------------------------
#define IS_ON_ITS_WAY(r, x_) ((sent[r] & BIT(x_)) && !(done[r] & BIT(x_)) && EPOCH(x_) == epoch[HOST_OF(r)])

// A retry is always full length.
#if defined(MUTANT_SHORT_RETRY)
#define RETRY(r, x_) \
  if :: has_none[r] & BIT(x_) -> up_header[r] = up_header[r] | BIT(x_) :: else -> up_full[r] = up_full[r] | BIT(x_) fi
#else
#define RETRY(r, x_) up_full[r] = up_full[r] | BIT(x_)
#endif
inline ask_again(r, x_) {
  if
  :: IS_ON_ITS_WAY(r, x_) -> RETRY(r, x_)
  :: else
  fi
}

// Rule 2; in order.
#define IS_CURRENT(r, x_) (EPOCH(x_) == epoch[HOST_OF(r)] && !(sent[r] & BIT(x_)) && \
                           (SEQ(x_) == 0 || (sent[r] & BIT((x_) - 1))))
#if defined(MUTANT_RULE_2)
#define MAY_SEND(r, x_) IS_CURRENT(r, x_)
#elif defined(HASTY)
#define MAY_SEND(r, x_) (IS_CURRENT(r, x_) && \
  (SEQ(x_) < P || !KEEPS_RULE_2(r) || (done[r] & BIT((x_) - P))) && (SEQ(x_) < 3 * P || (done[r] & BIT((x_) - 3 * P))))
#else
#define MAY_SEND(r, x_) (IS_CURRENT(r, x_) && (SEQ(x_) < P || (done[r] & BIT((x_) - P))))
#endif

#define ALL_OF_EPOCH (((1 << K) - 1) << ((EPOCHS - 1) * K))
#define IS_DONE(r) ((done[r] & ALL_OF_EPOCH) == ALL_OF_EPOCH)
#define ALL_DONE (IS_DONE(0) && IS_DONE(1) && IS_DONE(2))

// What all have: whether a rank had data for it can matter no more, nor can its packets without a payload.
#if defined(LOSSES)
#define FORGET(x_) skip
#else
#define FORGET(x_) forget(x_)
inline forget(x_) {
  if
  :: done[0] & done[1] & done[2] & BIT(x_) ->
     has_none[0] = has_none[0] & ~BIT(x_); has_none[1] = has_none[1] & ~BIT(x_); has_none[2] = has_none[2] & ~BIT(x_);
     up_header[0] = up_header[0] & ~BIT(x_); up_header[1] = up_header[1] & ~BIT(x_); up_header[2] = up_header[2] & ~BIT(x_)
  :: else
  fi
}
#endif

inline ask_with_oldest(r) {
  i = 0;
  do
  :: i < XS && !IS_ON_ITS_WAY(r, i) -> i++
  :: else -> break
  od;
  if
  :: i < XS -> RETRY(r, i)
  :: else
  fi
}

// ---- the network ----------------------------------------------------------------------------------------
#if defined(LOSSES)
// Taken out of the network; or stays, if it is doubled; or is gone, if it is lost. A damaged packet is a lost one.
#define TAKE(mask, x_) if :: mask = mask & ~BIT(x_) :: doubles < DOUBLES -> doubles++ fi
#define LOSE(mask, x_) :: losses < LOSSES && (mask & BIT(x_)) -> losses++; rounds = 0; asks = 0; mask = mask & ~BIT(x_)
#else
#define TAKE(mask, x_) skip
#define LOSE(mask, x_)
#endif
#if defined(MUTANT_CHECK)
#define DAMAGE if :: m_damaged = true :: m_damaged = false fi
#else
#define DAMAGE skip
#endif

#define IN_FLIGHT(mask, x_) ((x_) < XS && (mask & BIT(x_)))
#define PACKET(mask, x_, kind_, from, is_full) \
  :: IN_FLIGHT(mask, x_) -> TAKE(mask, x_); m_kind = kind_; m_from = from; m_x = x_; m_full = is_full \
  LOSE(mask, x_)
#define RANK_PACKETS(r, x_) \
  PACKET(up_header[r], x_, FROM_RANK, r, false) PACKET(up_full[r], x_, FROM_RANK, r, true) \
  PACKET(resend[r], x_, TO_RANK, r, false) PACKET(down[r], x_, TO_HOST, r, true)
#if SHAPE == 0
#define INNER_PACKETS(x_)
#else
#define INNER_PACKETS(x_) \
  PACKET(inner_header, x_, FROM_INNER, RANKS, false) PACKET(inner_full, x_, FROM_INNER, RANKS, true) \
  PACKET(down_group, x_, TO_HOST, 0, false) PACKET(resend_inner, x_, TO_INNER, 0, false)
#endif
#if defined(LOSSES)
#define SEND_HEADER(r, x_) up_header[r] = up_header[r] | BIT(x_)
#define RANK_RETRIES(r, x_) \
  :: (x_) < XS && early < EARLY && IS_ON_ITS_WAY(r, x_) -> early++; RETRY(r, x_)
#else
#define SEND_HEADER(r, x_) up_header[r] = up_header[r] | BIT(x_); up_full[r] = up_full[r] | BIT(x_)
#define RANK_RETRIES(r, x_)
#endif
#define RANK_STEPS(r, x_) \
  :: (x_) < XS && MAY_SEND(r, x_) -> sent[r] = sent[r] | BIT(x_); up_full[r] = up_full[r] | BIT(x_) \
  :: (x_) < XS && MAY_SEND(r, x_) && HEADERS && SEQ(x_) < HEADER_SEQS -> \
     sent[r] = sent[r] | BIT(x_); has_none[r] = has_none[r] | BIT(x_); SEND_HEADER(r, x_) \
  :: (x_) < XS && IS_ON_ITS_WAY(r, x_) && cell[HOST_OF(r) * SETS + CELL_OF(x_)] == (x_) + 1 -> \
     done[r] = done[r] | BIT(x_); rounds = 0; asks = 0; FORGET(x_)
#define RANK(r, x_) RANK_PACKETS(r, x_) RANK_STEPS(r, x_) RANK_RETRIES(r, x_)
#define ALL(x_) RANK(0, x_) RANK(1, x_) RANK(2, x_) INNER_PACKETS(x_)
#define SWITCH(h) :: (h) < HOSTS && epoch[h] + 1 < EPOCHS -> epoch[h]++; rounds = 0; asks = 0

inline handle() {
  if
  :: m_kind == FROM_RANK -> from_rank()
  :: m_kind == FROM_INNER -> from_inner()
  :: else
  fi;
  if
  :: m_kind == FROM_RANK || m_kind == FROM_INNER -> DAMAGE; contribution()
  :: m_kind == TO_HOST -> result()
  :: m_kind == TO_INNER -> resend_at_inner()
  :: m_kind == TO_RANK && EPOCH(m_x) == epoch[HOST_OF(m_from)] -> asks++; assert(asks <= ASKS_MAX); ask_again(m_from, m_x)
  :: else
  fi
}

inline forget_packet() {
  m_kind = NONE;   m_node = 0; m_child = 0; m_from = 0; m_x = 0; m_set = 0; m_sum = 0; i = 0;
  m_full = false; m_data = false; m_damaged = false; m_first = false
}

active proctype main() {
  do
  :: atomic {
       if
       ALL(0) ALL(1) ALL(2)
#if EPOCHS * K > 3
       ALL(3)
#endif
#if EPOCHS * K > 4
       ALL(4)
#endif
#if EPOCHS * K > 5
       ALL(5) ALL(6) ALL(7)
#endif
       SWITCH(0) SWITCH(1) SWITCH(2) SWITCH(3)
       fi;
       handle();
       forget_packet()
     }
#if defined(LOSSES)
  :: atomic {
       timeout ->
       if
       :: ALL_DONE -> break
       :: else -> rounds++; assert(rounds <= ROUNDS_MAX); ask_with_oldest(0); ask_with_oldest(1); ask_with_oldest(2)
       fi;
       forget_packet()
     }
#endif
  od
}
