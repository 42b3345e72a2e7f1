// SPDX-License-Identifier: Apache-2.0
// The XDP programs themselves on packets of anybody: a few at a time, made or raw, on a host that has a job in each role. A packet
// that does not belong, or is damaged, changes nothing but a counter; one that does changes no more than its own set; sums
// are what the definition of the operation makes of the contributions; what leaves is a packet.
#include <algorithm>
#include <array>
#include <cstring>

#include "fuzz/datapath/oracle.h"
#include "fuzz/datapath/program.h"
#include "fuzz/reader.h"
#include "fuzz/require.h"

namespace mlnet::fuzz {
namespace {

using test::Frame;

// What a packet has for a tag: of its job's key, or none where there is none; the other of the two; of another key; of what damage made of it.
enum class Tag : uint8_t { kRight, kContrary, kOtherKey, kOfDamaged };

enum class From : uint8_t { kRight, kStranger, kUp, kRoot, kOwnHost, kGroup, kOtherHost, kCount };

struct Counted {
  mlnet_verdict verdict;
  uint32_t stats_id;
};

constexpr int kActions[] = {
#define MLNET_X(name, action, help) action,
    MLNET_VERDICTS(MLNET_X)
#undef MLNET_X
};

// Whose PING a PONG from above answers: a child on another host that was heard, or -1.
int ChildOfPong(World& world, const mlnet_node& node, const Frame& frame) {
  const uint8_t child = frame.bitmap & 0xff;
  const bool is_from_above = (node.flags & MLNET_NODE_INNER) != 0 && std::memcmp(frame.saddr.bytes.data(), &node.local, 16) != 0;
  if (!is_from_above || child >= node.n_children || node.child_local[child] != 0) return -1;
  return static_cast<const mlnet_link*>(world.links().At(node.link_base + child))->mac != 0 ? child : -1;
}

bool IsToLocal(const mlnet_node& node, const Frame& frame) { return std::memcmp(frame.daddr.bytes.data(), &node.local, 16) == 0; }

class Host {
 public:
  Host() { Reset(); }
  void Reset() {
    world_.Reset();
    sums_.Clear();
    heard_.clear();
    counters_ = {};
  }
  void Take(const Bytes& frame);
  void Control(uint8_t what, uint8_t how);

 private:
  Counted TakeCounted();
  bool IsSentToOne(const Reading& reading, const Counted& counted) const;
  void CheckChanges(const Reading& reading, const Counted& counted, const std::vector<Entry>& changes);
  void CheckPing(const Frame& frame, const Counted& counted, const std::vector<Entry>& changes);
  std::vector<Entry> MayChange(const Frame& frame) const;
  void CheckTime(const Frame& came, const Frame& left);
  void CheckSent(const Reading& reading, const Counted& counted, const Ran& ran, size_t came_bytes);
  void CheckCopies(const Frame& frame, const Ran& ran);

  World& world_ = World::Get();
  Sums sums_;
  std::map<uint32_t, uint64_t> heard_;  // by link: the latest PING
  std::array<std::array<uint64_t, MLNET_V_COUNT>, 16> counters_{};  // by stats id, as last looked at
};

// A packet ends in one verdict, which is counted once.
Counted Host::TakeCounted() {
  Counted counted{};
  int num_moved = 0;
  for (uint32_t id = 0; id < world_.num_stats(); ++id) {
    const mlnet_stats& now = world_.Stats(id);
    for (size_t v = 0; v < MLNET_V_COUNT; ++v) {
      if (now.verdicts[v] == counters_[id][v]) continue;
      REQUIRE(now.verdicts[v] == ++counters_[id][v]);
      counted = {static_cast<mlnet_verdict>(v), id};
      ++num_moved;
    }
  }
  REQUIRE(num_moved == 1);
  return counted;
}

// Where a packet of this place, epoch and sender may leave something.
std::vector<Entry> Host::MayChange(const Frame& frame) const {
  const mlnet_node& node = *world_.Find(frame.job, frame.tree);
  const mlnet_pool& pool = node.pools[frame.class_stream];
  const uint64_t slots = 1ULL << pool.log2_slots;
  const auto slot = static_cast<uint32_t>(frame.seq % slots), set = static_cast<uint32_t>(frame.seq / slots % 2);
  std::vector<Entry> may = {{&world_.slots(), pool.slot_base + slot}, {world_.Words(pool.words_id), slot * 2 + set}, {&world_.events(), 0}};
  if (frame.child < node.n_children) may.push_back({&world_.links(), node.link_base + frame.child});
  for (const uint32_t inbox : {node.inbox_id, node.server_inbox_id}) {
    may.push_back({world_.Inbox(inbox), pool.cell_base + slot * 2 + set});
    may.push_back({world_.Wake(inbox), 0});
  }
  for (uint32_t local = 0; local < node.n_local; ++local) may.push_back({world_.Ring(node.local_ring[local]), 0});
  may.push_back({world_.Ring(node.server_ring_id), 0});
  return may;
}

void Host::CheckChanges(const Reading& reading, const Counted& counted, const std::vector<Entry>& changes) {
  if (!IsGenuine(world_, reading)) {
    // The daemon makes a pool's words when it hears of a packet for them, right or not.
    for (const Entry& entry : changes) REQUIRE(entry.map == &world_.events() && counted.verdict == MLNET_V_DROP_NO_POOL);
    REQUIRE(kActions[counted.verdict] == XDP_PASS || kActions[counted.verdict] == XDP_DROP);
    REQUIRE((counted.verdict == MLNET_V_PASS_NOT_OURS) == !reading.is_ours);
    const auto refusal = RefusalOfTag(world_, reading);
    REQUIRE(!refusal || counted.verdict == *refusal);
    REQUIRE(!reading.whole || reading.whole->check_ok || counted.verdict < MLNET_V_SUM_FIRST || counted.verdict > MLNET_V_DELIVERED);
    return;
  }
  const Frame& frame = reading.whole->frame;
  const auto may = MayChange(frame);
  for (const Entry& entry : changes) REQUIRE(std::find(may.begin(), may.end(), entry) != may.end());
  for (const mlnet_verdict refused : {MLNET_V_BUSY, MLNET_V_MISMATCH, MLNET_V_DROP_STALE, MLNET_V_DROP_ANSWER_OLD, MLNET_V_DROP_ANSWER_EARLY}) {
    if (counted.verdict != refused) continue;
    for (const Entry& entry : changes) REQUIRE(entry.map == &world_.links() || entry.map == &world_.events());
  }
  for (const mlnet_verdict wrong : {MLNET_V_DROP_CORRUPT, MLNET_V_DROP_EPOCH, MLNET_V_DROP_NOT_MEMBER, MLNET_V_DROP_MAC}) REQUIRE(counted.verdict != wrong);
  if (frame.type == MLNET_T_PING || frame.type == MLNET_T_PONG) CheckPing(frame, counted, changes);
}

// With a key each PING of a child is heard once, and an answer shows something for a second.
void Host::CheckPing(const Frame& frame, const Counted& counted, const std::vector<Entry>& changes) {
  const mlnet_node& node = *world_.Find(frame.job, frame.tree);
  const bool has_key = (node.flags & MLNET_NODE_MAC) != 0;
  const uint64_t now = Kernel::Get().now_ns / 1024;
  mlnet_verdict expected = MLNET_V_PONG;
  if (frame.type == MLNET_T_PONG && !frame.words.empty()) {
    expected = MLNET_V_DROP_MALFORMED;
  } else if (frame.type == MLNET_T_PONG) {
    const bool is_old = has_key && (now - frame.seq) % (1ULL << 48) >= 1 << 20;
    expected = is_old ? MLNET_V_DROP_PING_OLD : ChildOfPong(world_, node, frame) >= 0 ? MLNET_V_PONG_DOWN_TX : MLNET_V_PONG_SEEN;
  } else if (frame.daddr.IsMulticast()) {
    expected = world_.events().is_full ? MLNET_V_NOTICE_LOST : MLNET_V_PING_SEEN;
  } else if (!frame.words.empty()) {
    expected = MLNET_V_DROP_MALFORMED;
  } else if (uint64_t& heard = heard_[node.link_base + frame.child]; has_key && frame.seq <= heard) {
    expected = MLNET_V_DROP_PING_OLD;
  } else {
    heard = frame.seq;
    if ((node.flags & MLNET_NODE_INNER) != 0) expected = IsToLocal(node, frame) ? MLNET_V_PING_UP_REDIRECT : MLNET_V_PING_UP_TX;
    const auto& link = *static_cast<const mlnet_link*>(world_.links().At(node.link_base + frame.child));
    REQUIRE(link.last_ns == Kernel::Get().now_ns);
  }
  REQUIRE(counted.verdict == expected);
  REQUIRE(changes.empty() || kActions[expected] != XDP_DROP || expected == MLNET_V_PING_SEEN);
}

bool IsContribution(mlnet_verdict verdict) {
  switch (verdict) {
    case MLNET_V_SUM_FIRST:
    case MLNET_V_SUM_ADD:
    case MLNET_V_SUM_COMPLETE_TX:
    case MLNET_V_SUM_COMPLETE_FAN:
    case MLNET_V_SUM_COMPLETE_UNSENT:
    case MLNET_V_SUM_COMPLETE_LOCAL:
    case MLNET_V_PARTIAL_TX:
    case MLNET_V_PARTIAL_REDIRECT:
    case MLNET_V_SUM_TO_SERVER: return true;
    default: return false;
  }
}

// The sum is complete, but no copies can be made of it for want of metadata: its sender gets it as if it had asked again.
bool Host::IsSentToOne(const Reading& reading, const Counted& counted) const {
  if (Kernel::Get().has_meta || counted.verdict != MLNET_V_RESEND_RESULT) return false;
  const Frame& frame = reading.whole->frame;
  const Sums::Set* sum = sums_.Find(frame);
  return sum == nullptr || (sum->contributed >> frame.child & 1) == 0;
}

// As the devmap does it: one copy for each entry.
void Host::CheckCopies(const Frame& frame, const Ran& ran) {
  const mlnet_node& node = *world_.Find(frame.job, frame.tree);
  for (size_t k = 0; k < node.n_fan; ++k) {
    const Ran copy = Kernel::Get().Run(ml_egress, ran.frame, ran.meta);
    REQUIRE(copy.action == XDP_PASS && copy.meta.empty());
    const test::Parsed parsed = CheckOutgoing(copy.frame, ran.frame.size());
    REQUIRE(std::memcmp(parsed.frame.daddr.bytes.data(), &node.child_addr[node.fan_child[k]], 16) == 0);
    REQUIRE(parsed.frame.words == frame.words);
  }
  REQUIRE(Kernel::Get().Run(ml_egress, ran.frame, ran.meta).action == XDP_DROP);
}

// A PING that goes up is the node's own: of its own time. A PONG that goes down answers the child's: of its time, and by its way.
void Host::CheckTime(const Frame& came, const Frame& left) {
  const mlnet_node& node = *world_.Find(came.job, came.tree);
  if (left.type == MLNET_T_PING) {
    REQUIRE(left.seq == Kernel::Get().now_ns / 1024 % (1ULL << 48) && left.bitmap == (came.bitmap << 8 | came.child));
  } else if (came.type == MLNET_T_PONG) {
    const int child = ChildOfPong(world_, node, came);
    REQUIRE(child >= 0 && left.child == child && left.seq == heard_[node.link_base + static_cast<uint32_t>(child)] && left.bitmap == came.bitmap >> 8);
    REQUIRE(std::memcmp(left.daddr.bytes.data(), &node.child_addr[child], 16) == 0);
  } else {
    REQUIRE(left.seq == came.seq && (left.type != MLNET_T_PONG || left.bitmap == came.bitmap));
  }
}

void Host::CheckSent(const Reading& reading, const Counted& counted, const Ran& ran, size_t came_bytes) {
  if (ran.action != XDP_TX && ran.action != XDP_REDIRECT) return;
  REQUIRE(ran.action == XDP_TX || ran.fan != nullptr);
  const Frame& came = reading.whole->frame;
  const Frame left = CheckOutgoing(ran.frame, came_bytes).frame;
  REQUIRE(left.job == came.job && left.tree == came.tree && left.epoch == came.epoch && left.class_stream == came.class_stream);
  CheckTime(came, left);
  const bool is_fan = (ran.redirect_flags & BPF_F_BROADCAST) != 0 && ran.action == XDP_REDIRECT;
  if (is_fan) CheckCopies(left, ran);
  // A result that did not come from above or from the server, or a partial sum.
  const mlnet_node& node = *world_.Find(came.job, came.tree);
  const bool is_own_sum = came.type == MLNET_T_CONTRIB && (IsContribution(counted.verdict) || (node.flags & (MLNET_NODE_INNER | MLNET_NODE_SERVER)) == 0);
  if (!is_own_sum || (left.type != MLNET_T_RESULT && left.type != MLNET_T_CONTRIB)) return;
  const Sums::Set* sum = sums_.Find(came);
  REQUIRE(sum != nullptr && left.weight == (sum->weight & 0xffff) && left.exps == sum->exps);
  const auto zeros = std::vector<uint64_t>(left.words.size());
  REQUIRE(left.words == (sum->words.empty() ? zeros : sum->words) || (left.words.empty() && sum->words.empty()));
  REQUIRE(left.bitmap == (left.type == MLNET_T_RESULT ? sum->contributed : 0));
}

void Host::Take(const Bytes& frame) {
  const Reading reading = Read(frame);
  const Ran ran = Kernel::Get().Run(ml_ingress, frame);
  const Counted counted = TakeCounted();
  REQUIRE(static_cast<const mlnet_mac_state*>(Kernel::Get().MapOf("ml_mac_state").At(0))->is_right == 0);
  REQUIRE(ran.action == kActions[counted.verdict]);
  REQUIRE(counted.verdict != MLNET_V_UNDECIDED || !Kernel::Get().has_meta);
  if (!reading.is_ours) REQUIRE(ran.action == XDP_PASS && ran.frame == frame && ran.meta.empty());
  CheckChanges(reading, counted, world_.Changes());
  if (IsContribution(counted.verdict) || IsSentToOne(reading, counted)) sums_.Add(world_, reading.whole->frame);
  CheckSent(reading, counted, ran, frame.size());
}

void Host::Control(uint8_t what, uint8_t how) {
  const Tree& tree = world_.trees()[(how & 0x7f) % world_.trees().size()];
  switch (what % 7) {
    case 0: Kernel::Get().now_ns += 1ULL << (how % 32); break;
    case 1: Kernel::Get().has_meta = (how & 1) != 0; break;
    case 2: world_.events().is_full = (how & 1) != 0; break;
    case 3: world_.NextEpoch(tree); break;
    case 4: (how & 0x80) != 0 ? world_.GiveKey(tree) : world_.TakeKey(tree); break;
    case 5: Kernel::Get().before_mac_check = [this, &tree] { world_.NextEpoch(tree); }; break;
    default:
      world_.SetAsleep(tree.node->inbox_id, how);
  }
}

void Address(const Tree& tree, From from, Frame& frame) {
  const mlnet_node& node = *tree.node;
  const bool is_ipv6 = (node.flags & MLNET_NODE_IPV6) != 0;
  const auto at = is_ipv6 ? Ipv6 : Ipv4;
  const bool goes_up = frame.type == MLNET_T_CONTRIB || frame.type == MLNET_T_PING || frame.type == MLNET_T_ANSWER;
  const bool is_local = frame.type == MLNET_T_ANSWER || (goes_up && node.child_local[frame.child % MLNET_CHILDREN_MAX] != 0);
  const uint8_t senders[] = {goes_up ? (is_local ? kOwn : static_cast<uint8_t>(frame.child + 2)) : kUp, 77, kUp, kUp, kOwn, kUp, kOwn};
  frame.saddr = at(senders[static_cast<size_t>(from)]);
  frame.daddr = is_local || from == From::kOwnHost ? LocalOf(is_ipv6) : from == From::kGroup ? GroupOf(is_ipv6) : at(from == From::kOtherHost ? 78 : kOwn);
  if (!goes_up && from == From::kOtherHost) frame.saddr = LocalOf(is_ipv6), frame.daddr = at(kOwn);
}

// A whole packet, but for what the last byte says.
Bytes Make(Reader& in) {
  Frame frame;
  const uint8_t where = in.Byte();
  const auto& trees = World::Get().trees();
  const Tree& tree = trees[(where & 0x7f) % trees.size()];
  frame.job = tree.job;
  frame.tree = tree.tree;
  frame.epoch = static_cast<uint16_t>(tree.node->epoch - (where >> 7));
  frame.type = in.Byte() & 0xf;
  frame.child = in.Byte();
  frame.seq = in.Byte();
  frame.flags = in.Byte();
  const uint8_t op_wire = in.Byte(), pool = in.Byte(), seed = in.Byte();
  frame.op = op_wire >> 4;
  frame.wire = op_wire & 0xf;
  frame.class_stream = pool & 0xf;
  frame.weight = static_cast<uint16_t>(seed >> 4);
  frame.fingerprint = pool >> 4;
  frame.exps[seed % MLNET_EXPS_BYTES] = seed;
  if (frame.type == MLNET_T_PING || frame.type == MLNET_T_PONG) frame.bitmap = 0x0300u | seed;
  const uint8_t blocks = in.Byte();
  if ((frame.flags & MLNET_F_NO_PAYLOAD) != 0) {
    frame.nominal_words = static_cast<uint16_t>((blocks & 0xf) * MLNET_BLOCK_WORDS);
  } else {
    std::vector<uint64_t> words((blocks & 0xf) * size_t{MLNET_BLOCK_WORDS});
    for (size_t i = 0; i < words.size(); ++i) words[i] = (seed + 1) * (0x9e3779b97f4a7c15ULL + i * (blocks >> 4));
    frame.Words(std::move(words));
  }
  Address(tree, static_cast<From>(in.Byte() % static_cast<uint8_t>(From::kCount)), frame);
  const uint8_t last = in.Byte();
  const auto tag = static_cast<Tag>(last >> 2 & 3);
  const bool has_key = (tree.node->flags & MLNET_NODE_MAC) != 0;
  const mlnet_key& key = World::KeyOf(tag == Tag::kOtherKey ? 99 : frame.job, frame.epoch);
  if (has_key == (tag != Tag::kContrary)) frame.key = &key;
  Bytes bytes = frame.Build();
  for (uint8_t n = last & 3; n > 0; --n) {
    const size_t at = in.Half() % bytes.size();
    bytes[at] ^= in.Byte();
  }
  if (tag == Tag::kOfDamaged && frame.key != nullptr) {
    const uint64_t made = test::ReferenceTag(key, bytes);
    for (size_t i = 0; i < sizeof(made); ++i) bytes[bytes.size() - sizeof(made) + i] = static_cast<uint8_t>(made >> 8 * i);
  }
  return bytes;
}

}  // namespace
}  // namespace mlnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mlnet::fuzz;
  static Host host;
  Reader in(data, size);
  for (int packets = 0; packets < 64 && !in.IsAtEnd(); ++packets) {
    const uint8_t kind = in.Byte();
    if (kind < 0xc0) {
      host.Take(Make(in));
    } else if (kind < 0xe0) {
      host.Control(kind, in.Byte());
    } else {
      const size_t bytes = in.Half() % 1600;
      host.Take(in.Take(bytes));
    }
  }
  host.Reset();  // and nothing is left allocated that libFuzzer would take for a leak
  return 0;
}
