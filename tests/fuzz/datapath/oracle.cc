// SPDX-License-Identifier: Apache-2.0
#include "fuzz/datapath/oracle.h"

#include <algorithm>
#include <cstring>

#include "fuzz/require.h"

namespace mlnet::fuzz {
namespace {

using test::Frame;
using test::Parsed;

constexpr size_t kEthernet = 14, kIpv4 = 20, kIpv6 = 40, kUdp = 8, kHeader = 22, kTrailer = 42, kTag = 8;

uint16_t Be16(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }

// Lanes of `bits` by their own: sums that wrap, or maxima.
template <typename Combine>
uint64_t ByLane(unsigned bits, uint64_t a, uint64_t b, Combine combine) {
  const uint64_t mask = bits == 64 ? ~0ULL : (1ULL << bits) - 1;
  uint64_t out = 0;
  for (unsigned at = 0; at < 64; at += bits) out |= (combine(a >> at & mask, b >> at & mask) & mask) << at;
  return out;
}

uint64_t Combine(uint8_t op, uint64_t a, uint64_t b) {
  const auto sum = [](uint64_t x, uint64_t y) { return x + y; };
  const auto most = [](uint64_t x, uint64_t y) { return std::max(x, y); };
  switch (op) {
    case MLNET_OP_ADD64: return ByLane(64, a, b, sum);
    case MLNET_OP_ADD32: return ByLane(32, a, b, sum);
    case MLNET_OP_MAX8: return ByLane(8, a, b, most);
    case MLNET_OP_MAX16: return ByLane(16, a, b, most);
    case MLNET_OP_MAX32: return ByLane(32, a, b, most);
    case MLNET_OP_MAX64: return ByLane(64, a, b, most);
    case MLNET_OP_OR: return a | b;
    case MLNET_OP_XOR: return a ^ b;
    default: REQUIRE(!"an operation that means something"); return 0;
  }
}

bool IsFrom(const Frame& frame, const mlnet_addr& address) { return std::memcmp(frame.saddr.bytes.data(), &address, 16) == 0; }
bool IsTo(const Frame& frame, const mlnet_addr& address) { return std::memcmp(frame.daddr.bytes.data(), &address, 16) == 0; }

bool IsOfChild(const mlnet_node& node, const Frame& frame) {
  const bool is_here = IsTo(frame, node.addr) || IsTo(frame, node.local);
  return (node.flags & MLNET_NODE_AGGREGATE) != 0 && is_here && frame.child < node.n_children && IsFrom(frame, node.child_addr[frame.child]);
}

bool IsOfParent(const mlnet_node& node, const Frame& frame) {
  const bool is_inner = (node.flags & MLNET_NODE_INNER) != 0, may_be_roots = frame.type == MLNET_T_RESULT || frame.type == MLNET_T_PING;
  if (!is_inner && (node.flags & MLNET_NODE_DELIVER) == 0) return false;
  return IsFrom(frame, node.parent) || (is_inner && IsFrom(frame, node.up)) || (may_be_roots && IsFrom(frame, node.root));
}

bool IsOfServer(const mlnet_node& node, const Frame& frame) {
  return (node.flags & MLNET_NODE_SERVER) != 0 && (frame.flags & MLNET_F_SERVER) != 0 && IsTo(frame, node.local) && IsFrom(frame, node.addr);
}

// Of a reply: a rank of this host, or all of them where it is about this node's partial sum.
bool HasReader(const mlnet_node& node, const Frame& frame) {
  const bool is_nodes = (node.flags & MLNET_NODE_INNER) != 0 && !IsFrom(frame, node.local);
  return is_nodes || (frame.child < MLNET_CHILDREN_MAX && node.child_local[frame.child] != 0);
}

bool MayComeFrom(const mlnet_node& node, const Frame& frame) {
  switch (frame.type) {
    case MLNET_T_CONTRIB: return frame.op < MLNET_OP_COUNT && IsOfChild(node, frame);
    case MLNET_T_PING: return frame.daddr.IsMulticast() ? IsOfParent(node, frame) : IsOfChild(node, frame);
    case MLNET_T_ANSWER: return IsOfServer(node, frame);
    case MLNET_T_RESULT:
    case MLNET_T_PONG: return IsOfParent(node, frame);
    case MLNET_T_HELD:
    case MLNET_T_BUSY:
    case MLNET_T_RESEND:
    case MLNET_T_MISMATCH: return IsOfParent(node, frame) && HasReader(node, frame);
    default: return false;
  }
}

// Null: there is no such job, or not of this epoch and family.
const mlnet_node* FindNode(const World& world, const Reading& reading) {
  const Frame& frame = reading.whole->frame;
  const mlnet_node* node = world.Find(frame.job, frame.tree);
  const bool is_its = node != nullptr && frame.epoch == node->epoch && reading.is_ipv6 == ((node->flags & MLNET_NODE_IPV6) != 0);
  return is_its ? node : nullptr;
}

bool HasPool(const mlnet_node& node, const Frame& frame) {
  return frame.class_stream < MLNET_POOLS_MAX && node.pools[frame.class_stream].is_open != 0;
}

// Jobs without a key have none.
bool HasRightTag(const World& world, const mlnet_node& node, const Reading& reading) {
  const auto& tag = reading.whole->tag;
  if ((node.flags & MLNET_NODE_MAC) == 0) return !tag;
  const mlnet_key* key = world.FindKey(reading.whole->frame.job, reading.whole->frame.epoch);
  return key != nullptr && tag && *tag == test::ReferenceTag(*key, reading.bytes);
}

}  // namespace

Reading Read(const Bytes& b) {
  Reading reading;
  reading.is_ipv6 = b.size() >= kEthernet && Be16(&b[12]) == 0x86dd;
  const size_t ip = reading.is_ipv6 ? kIpv6 : kIpv4, udp_at = kEthernet + ip, header_at = udp_at + kUdp;
  if (b.size() < header_at || Be16(&b[udp_at + 2]) != MLNET_UDP_PORT) return reading;
  const uint8_t* at = &b[kEthernet];
  if (reading.is_ipv6) reading.is_ours = at[0] >> 4 == 6 && at[6] == 17;
  else reading.is_ours = Be16(&b[12]) == 0x0800 && at[0] == 0x45 && at[9] == 17 && (Be16(at + 6) & 0x1fff) == 0;
  const bool is_fragment = !reading.is_ipv6 && (at[6] & 0x20) != 0;
  if (!reading.is_ours || is_fragment || b.size() < header_at + kHeader + kTrailer) return reading;
  const uint8_t* header = &b[header_at];
  const size_t words = header[10] | header[11] << 8;
  const size_t payload = (header[9] & MLNET_F_NO_PAYLOAD) != 0 ? 0 : words * 8, untagged = kUdp + kHeader + payload + kTrailer;
  const size_t udp_bytes = Be16(&b[udp_at + 4]);
  const size_t ip_says = reading.is_ipv6 ? Be16(at + 4) : Be16(at + 2) - kIpv4;
  const bool is_one = udp_bytes == untagged || udp_bytes == untagged + kTag;
  const bool fits = words <= MLNET_WORDS_MAX && words % MLNET_BLOCK_WORDS == 0 && is_one && udp_bytes == ip_says;
  if (!fits || header[0] >> 4 != MLNET_PROTO_VERSION || b.size() < udp_at + udp_bytes) return reading;
  reading.whole = test::ParseFrame(b);
  reading.bytes = b;
  return reading;
}

bool IsGenuine(const World& world, const Reading& reading) {
  if (!reading.whole || !reading.whole->check_ok) return false;
  const mlnet_node* node = FindNode(world, reading);
  return node != nullptr && HasPool(*node, reading.whole->frame) && HasRightTag(world, *node, reading) && MayComeFrom(*node, reading.whole->frame);
}

std::optional<mlnet_verdict> RefusalOfTag(const World& world, const Reading& reading) {
  if (!reading.whole) return {};
  const mlnet_node* node = FindNode(world, reading);
  if (node == nullptr || HasRightTag(world, *node, reading)) return {};
  if ((node->flags & MLNET_NODE_MAC) == 0) return MLNET_V_DROP_MALFORMED;
  if (!reading.whole->tag) return MLNET_V_DROP_MAC;
  if (!HasPool(*node, reading.whole->frame)) return {};
  return reading.whole->check_ok ? MLNET_V_DROP_MAC : MLNET_V_DROP_CORRUPT;
}

Sums::Place Sums::PlaceOf(const World& world, const Frame& frame) {
  const mlnet_pool& pool = world.Find(frame.job, frame.tree)->pools[frame.class_stream];
  return {frame.job, frame.tree, frame.class_stream, frame.seq % (2ULL << pool.log2_slots)};
}

const Sums::Set* Sums::Find(const Frame& frame) const {
  const auto found = sets_.find(PlaceOf(World::Get(), frame));
  return found != sets_.end() && found->second.seq == frame.seq && found->second.epoch == frame.epoch ? &found->second : nullptr;
}

void Sums::Add(World& world, const Frame& frame) {
  Set& set = sets_[PlaceOf(world, frame)];
  if (set.contributed == 0 || set.seq != frame.seq || set.epoch != frame.epoch) set = {frame.seq, frame.epoch, 0, 0, {}, 0, {}};
  REQUIRE((set.contributed >> frame.child & 1) == 0);
  set.contributed |= 1ULL << frame.child;
  set.or_flags |= (frame.flags & MLNET_F_OR_MASK) | ((frame.tos & 3) == 3 ? MLNET_F_CE : 0);
  const size_t exp_bytes = frame.wire == MLNET_WIRE_FLOAT64 ? 2 : 1;
  for (size_t i = 0; i < MLNET_EXPS_BYTES; i += exp_bytes) {
    const auto value = [&](const auto& exps) { return exp_bytes == 2 ? exps[i] | exps[i + 1] << 8 : exps[i]; };
    if (value(frame.exps) > value(set.exps)) std::copy_n(&frame.exps[i], exp_bytes, &set.exps[i]);
  }
  if ((frame.flags & MLNET_F_NO_DATA) == 0) {
    set.weight += frame.weight;
    if (set.words.empty()) set.words = frame.words;
    else for (size_t i = 0; i < frame.words.size(); ++i) set.words[i] = Combine(frame.op, set.words[i], frame.words[i]);
  }
  const mlnet_pool& pool = world.Find(frame.job, frame.tree)->pools[frame.class_stream];
  const uint64_t slots = 1ULL << pool.log2_slots;
  const auto& slot = *static_cast<const mlnet_slot*>(world.slots().At(pool.slot_base + static_cast<uint32_t>(frame.seq % slots)));
  const auto which = static_cast<uint32_t>(frame.seq / slots % 2);
  const mlnet_set& there = slot.set[which];
  REQUIRE(there.seq == set.seq && there.epoch == set.epoch && there.contributed == set.contributed);
  REQUIRE(there.weight == (set.weight & 0xffff) && there.flags == set.or_flags);
  REQUIRE(std::memcmp(there.exps, set.exps.data(), set.exps.size()) == 0);
  const auto* words = static_cast<const mlnet_words*>(world.Words(pool.words_id)->At(static_cast<uint32_t>(frame.seq % slots) * 2 + which));
  for (size_t i = 0; i < set.words.size(); ++i) REQUIRE(words->w[i] == set.words[i]);
}

Parsed CheckOutgoing(const Bytes& frame, size_t came_bytes) {
  REQUIRE(frame.size() <= came_bytes);
  const Reading reading = Read(frame);
  REQUIRE(reading.whole && reading.whole->check_ok && reading.whole->ip_checksum_ok && reading.whole->udp_checksum == 0);
  const mlnet_node* node = FindNode(World::Get(), reading);
  REQUIRE(node != nullptr && HasRightTag(World::Get(), *node, reading));
  return *reading.whole;
}

}  // namespace mlnet::fuzz
