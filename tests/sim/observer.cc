// SPDX-License-Identifier: Apache-2.0
#include "sim/observer.h"

#include <algorithm>
#include <cstring>

namespace mlnet::sim {
namespace {

// Of all ranks. Whether a queue marked a contribution on its way is not of their making.
constexpr uint8_t kMergedFlags = MLNET_F_OR_MASK & ~MLNET_F_CE;

constexpr size_t kComplaintsMost = 5;
constexpr size_t kEthernetBytes = 14;

template <typename Lane>
uint64_t MaxOfLanes(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  for (unsigned shift = 0; shift < 64; shift += 8 * sizeof(Lane)) {
    out |= static_cast<uint64_t>(std::max(static_cast<Lane>(a >> shift), static_cast<Lane>(b >> shift))) << shift;
  }
  return out;
}

// The operations by their definition in WIRE_FORMAT.md.
uint64_t Combine(uint8_t op, uint64_t a, uint64_t b) {
  switch (op) {
    case MLNET_OP_ADD32: return static_cast<uint32_t>(a + b) | ((a >> 32) + (b >> 32)) << 32;
    case MLNET_OP_MAX8: return MaxOfLanes<uint8_t>(a, b);
    case MLNET_OP_MAX16: return MaxOfLanes<uint16_t>(a, b);
    case MLNET_OP_MAX32: return MaxOfLanes<uint32_t>(a, b);
    case MLNET_OP_MAX64: return std::max(a, b);
    case MLNET_OP_OR: return a | b;
    case MLNET_OP_XOR: return a ^ b;
    default: return a + b;
  }
}

uint16_t At16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }

void MergeExponents(uint8_t wire, const std::array<uint8_t, MLNET_EXPS_BYTES>& from, uint8_t* into) {
  if (wire != MLNET_WIRE_FLOAT64) {
    for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
    return;
  }
  for (size_t i = 0; i < from.size(); i += 2) {
    const uint16_t most = std::max(At16(&into[i]), At16(&from[i]));
    into[i] = static_cast<uint8_t>(most);
    into[i + 1] = static_cast<uint8_t>(most >> 8);
  }
}

}  // namespace

Observer::Observer(const ClusterOptions& options, const TreeShape& shape, uint16_t job, uint16_t epoch)
    : options_(options), shape_(shape), job_(job), epoch_(epoch) {
  for (int r = 0; r < options.ranks; ++r) all_ranks_.push_back(r);
}

bool Observer::Cut(std::span<const uint8_t> bytes, Packet& packet) {
  if (bytes.size() < sizeof(mlnet_hdr) + sizeof(mlnet_trailer)) return false;
  std::memcpy(&packet.header, bytes.data(), sizeof(mlnet_hdr));
  const size_t payload = packet.header.flags & MLNET_F_NO_PAYLOAD ? 0 : size_t{packet.header.words} * 8;
  if (bytes.size() < sizeof(mlnet_hdr) + payload + sizeof(mlnet_trailer)) return false;
  packet.payload = bytes.subspan(sizeof(mlnet_hdr), payload);
  std::memcpy(&packet.trailer, bytes.data() + sizeof(mlnet_hdr) + payload, sizeof(mlnet_trailer));
  packet.seq = packet.header.seq_lo | static_cast<uint64_t>(packet.header.seq_hi) << 32;
  return true;
}

bool Observer::CutFrame(std::span<const uint8_t> frame, Packet& packet) {
  if (frame.size() < kEthernetBytes) return false;
  const size_t header_at = frame[12] == 0x86 ? 62 : 42;
  return frame.size() > header_at && Cut(frame.subspan(header_at), packet);
}

uint64_t Observer::KeyOf(uint8_t tree, uint8_t class_stream, uint64_t seq) {
  return uint64_t{tree} << 56 | uint64_t{class_stream} << 48 | seq;
}

Observer::Sum* Observer::Find(const Packet& packet) {
  const auto found = sums_.find(KeyOf(packet.header.tree, packet.header.class_stream, packet.seq));
  return found == sums_.end() ? nullptr : &found->second;
}

void Observer::Complain(const Packet& packet, const std::string& what) {
  if (complaints_.size() >= kComplaintsMost) return;
  complaints_.push_back("tree " + std::to_string(packet.header.tree) + " class_stream " +
                        std::to_string(packet.header.class_stream) + " seq " + std::to_string(packet.seq) + ": " + what);
}

// s proves that the result of s - P is here, so everybody has sent s - P, and nobody needs s - 2P any more.
void Observer::CheckOrder(int rank, const Packet& packet) {
  const bool is_fixup = MLNET_STREAM(packet.header.class_stream) != 0;
  const uint64_t slots = 1ULL << (is_fixup ? options_.fixup_log2_slots : options_.log2_slots);
  if (packet.seq < options_.first_seq + slots) return;
  const auto found = sums_.find(KeyOf(packet.header.tree, packet.header.class_stream, packet.seq - slots));
  if (found == sums_.end() || found->second.num_sent != options_.ranks) {
    Complain(packet, "rank " + std::to_string(rank) + " sends it before all ranks have sent the one a pool earlier");
    return;
  }
  const int host = rank % options_.hosts;
  const bool is_made_here = host == shape_.RootOf(packet.header.tree);  // and written to the inbox without a frame
  if (!is_made_here && !(found->second.reached >> host & 1)) {
    Complain(packet, "rank " + std::to_string(rank) + " sends it before the result of a pool earlier has reached its host");
  }
}

void Observer::OnSent(int rank, std::span<const std::byte> bytes) {
  Packet packet;
  const bool is_whole = Cut({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, packet);
  if (!is_whole || packet.header.epoch != epoch_ || packet.header.job != job_) {
    Complain(packet, "rank " + std::to_string(rank) + " sends what is no packet of this job and epoch");
    return;
  }
  Sum& sum = sums_[KeyOf(packet.header.tree, packet.header.class_stream, packet.seq)];
  if (sum.ranks.empty()) sum.ranks.resize(static_cast<size_t>(options_.ranks));
  Contribution& own = sum.ranks[static_cast<size_t>(rank)];
  const bool has_data = !(packet.header.flags & MLNET_F_NO_DATA);
  if (own.is_sent) {
    const bool is_same = own.has_data == has_data && (!has_data || (packet.payload.size() == own.words.size() * 8 &&
                         std::memcmp(packet.payload.data(), own.words.data(), packet.payload.size()) == 0));
    if (!is_same) Complain(packet, "rank " + std::to_string(rank) + " sends another one than at first");
    return;
  }
  CheckOrder(rank, packet);
  own.is_sent = true;
  own.has_data = has_data;
  own.flags = packet.header.flags & kMergedFlags;
  std::copy_n(packet.trailer.exps, MLNET_EXPS_BYTES, own.exps.begin());
  if (has_data) {
    own.words.resize(packet.payload.size() / 8);
    std::memcpy(own.words.data(), packet.payload.data(), packet.payload.size());
  }
  sum.op = packet.header.op_wire >> 4;
  sum.wire = packet.header.op_wire & 0xf;
  ++sum.num_sent;
}

const std::vector<int>& Observer::RanksBelow(int host, int tree) {
  const auto [found, is_new] = below_.try_emplace({host, tree});
  if (!is_new) return found->second;
  std::vector<int> ranks;
  for (const Child& child : shape_.ChildrenOf(host, tree)) {
    const std::vector<int> below = child.rank >= 0 ? std::vector<int>{child.rank} : RanksBelow(child.host, tree);
    ranks.insert(ranks.end(), below.begin(), below.end());
  }
  return found->second = std::move(ranks);
}

// A rank's first packet is its part for good (OnSent complains of any other), so what is made of all parts stays right.
const Observer::Expected* Observer::ExpectedOf(int whose, Sum& sum, uint8_t tree, std::string& why) {
  const auto found = sum.expected.find(whose);
  if (found != sum.expected.end()) return &found->second;
  Expected expected;
  for (const int rank : whose == kAll ? all_ranks_ : RanksBelow(whose, tree)) {
    const Contribution& part = sum.ranks[static_cast<size_t>(rank)];
    if (!part.is_sent) {
      why = "rank " + std::to_string(rank) + " has not sent its part";
      return nullptr;
    }
    expected.flags |= part.flags;
    MergeExponents(sum.wire, part.exps, expected.exps.data());
    if (!part.has_data) continue;
    if (expected.words.size() < part.words.size()) expected.words.resize(part.words.size());
    for (size_t i = 0; i < part.words.size(); ++i) {
      uint64_t& word = expected.words[i];
      word = expected.weight == 0 ? part.words[i] : Combine(sum.op, word, part.words[i]);
    }
    ++expected.weight;
  }
  return &sum.expected.emplace(whose, std::move(expected)).first->second;
}

// A packet may be shorter than the sum, or longer where no rank has data.
bool Observer::HoldsSumOf(int whose, Sum& sum, const Packet& packet, std::string& why) {
  const Expected* expected = ExpectedOf(whose, sum, packet.header.tree, why);
  if (expected == nullptr) return false;
  const size_t summed = std::min(packet.payload.size(), expected->words.size() * 8);
  const std::span<const uint8_t> rest = packet.payload.subspan(summed);
  const auto differs = [&why](const std::string& what) {
    why = "it is not the sum of its ranks: " + what;
    return false;
  };
  if (packet.trailer.weight != expected->weight) {
    return differs("weight " + std::to_string(packet.trailer.weight) + " of " + std::to_string(expected->weight));
  }
  if ((packet.header.flags & kMergedFlags) != expected->flags) return differs("flags");
  if (std::memcmp(expected->exps.data(), packet.trailer.exps, MLNET_EXPS_BYTES) != 0) return differs("exponents");
  if (summed > 0 && std::memcmp(expected->words.data(), packet.payload.data(), summed) != 0) return differs("words");
  return std::all_of(rest.begin(), rest.end(), [](uint8_t byte) { return byte == 0; }) || differs("words behind them");
}

void Observer::OnEmitted(int host, std::span<const uint8_t> frame) {
  Packet packet;
  if (!CutFrame(frame, packet) || packet.header.epoch != epoch_) {
    Complain(packet, "host " + std::to_string(host) + " answers what is not of this epoch");
    return;
  }
  const uint8_t type = packet.header.version_type & 0xf;
  if (type != MLNET_T_RESULT && type != MLNET_T_CONTRIB) return;
  Sum* sum = Find(packet);
  std::string why;
  ++sums_compared_;
  const bool is_result = type == MLNET_T_RESULT;
  if (sum == nullptr) why = "nobody has sent a part";
  else if (HoldsSumOf(is_result ? kAll : host, *sum, packet, why)) return;
  Complain(packet, "host " + std::to_string(host) + " sends a " + (is_result ? "result" : "partial sum") + ", but " + why);
}

void Observer::OnArrived(int host, std::span<const uint8_t> frame) {
  Packet packet;
  if (!CutFrame(frame, packet) || packet.header.version_type != (MLNET_PROTO_VERSION << 4 | MLNET_T_RESULT)) return;
  Sum* sum = packet.header.epoch == epoch_ && packet.header.job == job_ ? Find(packet) : nullptr;
  std::string why;
  if (sum != nullptr && HoldsSumOf(kAll, *sum, packet, why)) sum->reached |= 1ULL << host;
}

}  // namespace mlnet::sim
