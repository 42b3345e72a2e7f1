// SPDX-License-Identifier: Apache-2.0
#include "traffic/float_traffic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dequantize.h"
#include "elements.h"
#include "quantize64.h"
#include "traffic/repair_traffic.h"
#include "wire/packet.h"

namespace mlnet::worker {
namespace {

// The fewest bits that the smallest element of a block keeps. Under it a block of float32 gets a second lane
// of 16 or 32 bits an element, and where those do not reach either, it is gathered.
constexpr int kWideBits = 12;
constexpr int kLowLevelsMost = 30;  // both lanes as one number stay in 62 bits, in a world of one too
constexpr int kFarBits64 = 24;  // float64: no wider lanes exist, and nobody takes it for 12 bits

LaneFormat FormatOf(const CollectiveSpec& spec, const JobShape& job) {
  if (spec.dtype == DataType::kFloat64) {
    return {64, Log2Range(64, job.world_size), kBlock64Elements * MLNET_BLOCKS_PER_PAIR(job.blocks)};
  }
  const int bits = spec.wire == WireType::kInt8 ? 8 : spec.wire == WireType::kInt16 ? 16 : 32;
  return LaneFormat::Of(bits, job.world_size, job.blocks);
}

uint8_t WireOf(int bits) {
  if (bits == 64) return MLNET_WIRE_FLOAT64;
  return bits == 32 ? MLNET_WIRE_BIASED32 : bits == 16 ? MLNET_WIRE_BIASED16 : MLNET_WIRE_BIASED8;
}

// Those under one exponent each, of a full packet.
uint32_t BlocksOf(const JobShape& job, int bits) {
  const uint32_t pairs = job.blocks / MLNET_BLOCKS_PER_PAIR(job.blocks);
  return bits == 64 ? std::min<uint32_t>(pairs / 2, MLNET_PAIRS64_MAX) : pairs;
}

}  // namespace

// The low lanes are not signed, so they need no bias: 2R levels carry bits where R is Log2Range's.
LowLanes::LowLanes(int lane_bits, const LaneFormat& high, int world_size)
    : bits(lane_bits),
      log2_levels(std::min(Log2Range(lane_bits, world_size) + 1, kLowLevelsMost)),
      log2_range(high.log2_range + log2_levels) {}

FloatTraffic::FloatTraffic(const CollectiveSpec& spec, const JobShape& job, Counters& counters)
    : spec_(spec),
      job_(job),
      counters_(counters),
      window_(spec, SizeOf(spec.dtype), spec.count),
      format_(FormatOf(spec, job)),
      block_elements_(format_.block_elements),
      packet_blocks_(BlocksOf(job, format_.bits)),
      packet_elements_(packet_blocks_ * block_elements_),
      data_packets_(CeilDiv(spec.count, packet_elements_)),
      half_wide_(16, format_, job.world_size),
      wide_(32, format_, job.world_size),
      own_marks_(packet_elements_),
      merged_marks_(packet_elements_) {
  probe_covers_ = std::min<uint32_t>(MLNET_PROBE_COVERS, job.blocks * MLNET_BLOCK_BYTES / MLNET_EXPS_BYTES);
  covered_ = static_cast<uint32_t>(std::min<uint64_t>(data_packets_, job.slots));
  probes_ = static_cast<uint32_t>(CeilDiv(covered_, probe_covers_));
  packets_ = probes_ + data_packets_;
  common_.resize(covered_);
  first_high_.resize(covered_);
  probe_answered_.resize(probes_);
}

size_t FloatTraffic::ElementsOf(uint64_t data_packet) const {
  return std::min<size_t>(packet_elements_, spec_.count - data_packet * packet_elements_);
}

Shape FloatTraffic::ShapeOf(uint64_t packet) const {
  if (IsProbe(packet)) {
    const uint64_t count = std::min<uint64_t>(probe_covers_, covered_ - packet * probe_covers_);
    const uint8_t op = IsDouble() ? MLNET_OP_MAX16 : MLNET_OP_MAX8;
    return {WordsFor(count * MLNET_EXPS_BYTES), wire::OpWire(op, MLNET_WIRE_EXPS), true};
  }
  // Lanes are made by the exponent, padding too.
  const size_t elements = CeilDiv(ElementsOf(packet - probes_), block_elements_) * block_elements_;
  return {WordsFor(elements * static_cast<size_t>(format_.bits) / 8),
          wire::OpWire(MLNET_OP_ADD64, WireOf(format_.bits)), true};
}

bool FloatTraffic::IsReady(uint64_t packet) const {
  if (IsProbe(packet)) return true;
  const uint64_t data_packet = packet - probes_;
  // From P on the exponents came with the result of data_packet - P, which freed this very slot.
  return data_packet >= covered_ || probe_answered_[data_packet / probe_covers_];
}

std::span<const float> FloatTraffic::FloatsOf(uint64_t data_packet, std::span<float> scratch) const {
  const size_t first = data_packet * packet_elements_, count = ElementsOf(data_packet);
  if (spec_.dtype == DataType::kFloat32) return {static_cast<const float*>(spec_.in) + first, count};
  LoadFloats(spec_.dtype, At(first), count, scratch.data());
  return scratch.first(count);
}

std::span<const double> FloatTraffic::DoublesOf(uint64_t data_packet) const {
  const size_t first = data_packet * packet_elements_;
  return {static_cast<const double*>(spec_.in) + first, ElementsOf(data_packet)};
}

void FloatTraffic::Measure(uint64_t data_packet, PacketExps& exps) const {
  if (IsDouble()) {
    MeasureExps64(DoublesOf(data_packet), block_elements_, exps);
    return;
  }
  std::array<float, kPacketFloatsMax> scratch;
  MeasureExps(FloatsOf(data_packet, scratch), block_elements_, exps);
}

uint8_t FloatTraffic::Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) {
  if (IsProbe(packet)) {
    FillProbe(packet, words);
    return 0;
  }
  const uint64_t data_packet = packet - probes_;
  const bool all_finite = IsDouble() ? FillLanes64(data_packet, is_retry, words)
                                     : FillLanes(data_packet, is_retry, words);
  const uint64_t ahead = data_packet + job_.slots;
  if (ahead < data_packets_) {
    PacketExps measured;
    Measure(ahead, measured);
    std::memcpy(exps, measured.data(), measured.size());
  }
  return all_finite ? 0 : MLNET_F_NONFINITE;
}

void FloatTraffic::FillProbe(uint64_t probe, std::span<uint64_t> words) const {
  std::fill(words.begin(), words.end(), 0);
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  const uint64_t first = probe * probe_covers_, end = std::min<uint64_t>(first + probe_covers_, covered_);
  for (uint64_t packet = first; packet < end; ++packet) {
    PacketExps exps;
    Measure(packet, exps);
    std::memcpy(bytes + (packet - first) * exps.size(), exps.data(), exps.size());
  }
}

bool FloatTraffic::FillLanes(uint64_t data_packet, bool is_retry, std::span<uint64_t> words) {
  std::array<float, kPacketFloatsMax> scratch;
  const std::span<const float> x = FloatsOf(data_packet, scratch);
  const PacketExps& common = CommonOf(data_packet);
  std::optional<Dither> dither;
  if (spec_.is_stochastic && format_.bits < 32) {
    const uint64_t first = spec_.element_base + data_packet * packet_elements_;
    dither = Dither{static_cast<uint32_t>(job_.seed ^ (first >> 32) * 0x9e3779b97f4a7c15ULL),
                    static_cast<uint32_t>(first)};
  }
  const uint32_t open = OpenMask(common);
  const bool all_finite = Quantize(x, common, format_, open, dither, words.data());
  if (open != 0) FillHigh(data_packet, x, reinterpret_cast<uint32_t*>(words.data()));
  // Once, and now: the result may replace the input.
  if (!all_finite && !is_retry) own_marks_.Note(data_packet, x);
  if (spec_.residual != nullptr && !is_retry) NoteResidual(data_packet, x, words.data());
  return all_finite;
}

// The high lanes of wide blocks: all but the low bits of q + R.
void FloatTraffic::FillHigh(uint64_t data_packet, std::span<const float> x, uint32_t* lanes) const {
  const PacketExps& common = common_[data_packet % common_.size()];
  for (size_t at = 0; at < x.size(); at += kBlock64Elements) {
    const size_t b = at / block_elements_;
    const LowLanes* low = LowLanesOf(WidthOf(common, b));
    if (low == nullptr) continue;
    std::array<uint64_t, kBlock64Elements> whole;
    const size_t count = std::min<size_t>(kBlock64Elements, x.size() - at);
    QuantizeWide(x.subspan(at, count), RangeOf(common, b).largest, low->log2_range, whole.data());
    for (size_t i = 0; i < count; ++i) lanes[at + i] = static_cast<uint32_t>(whole[i] >> low->log2_levels);
  }
}

bool FloatTraffic::FillLanes64(uint64_t data_packet, bool is_retry, std::span<uint64_t> words) {
  const std::span<const double> x = DoublesOf(data_packet);
  const PacketExps& common = CommonOf(data_packet);
  const uint32_t open = OpenMask(common);
  bool all_finite = true;
  for (size_t first = 0, block = 0; first < words.size(); first += block_elements_, ++block) {
    const bool is_open = (open >> block & 1U) != 0;
    const int largest = RangeOf64(common, block).largest;
    for (size_t i = first; i < std::min<size_t>(first + block_elements_, words.size()); ++i) {
      const double value = i < x.size() ? x[i] : 0;
      all_finite &= std::isfinite(value);
      words[i] = QuantizeOne64(is_open ? 0 : value, largest, kFloat64Bias, format_.log2_range);
    }
  }
  if (!all_finite && !is_retry) own_marks_.Note(data_packet, x);
  return all_finite;
}

void FloatTraffic::NoteResidual(uint64_t data_packet, std::span<const float> x, const void* lanes) {
  std::array<float, kPacketFloatsMax> sent;
  Dequantize(lanes, CommonOf(data_packet), format_, 1, std::span(sent).first(x.size()));
  float* residual = spec_.residual + data_packet * packet_elements_;
  const uint32_t open = OpenMask(CommonOf(data_packet));
  for (size_t i = 0; i < x.size(); ++i) {
    const bool is_repaired = (open >> (i / block_elements_) & 1U) != 0;
    residual[i] = std::isfinite(x[i]) && !is_repaired ? x[i] - sent[i] : 0;
  }
}

FloatTraffic::Width FloatTraffic::WidthOf(const PacketExps& exps, size_t block) const {
  const ExponentRange range = IsDouble() ? RangeOf64(exps, block) : RangeOf(exps, block);
  // Lossy on request, but not beyond the bound: subnormals share E = 1, which says nothing about them.
  if (format_.bits < 32) return range.largest == 1 ? Width::kFar : Width::kNarrow;
  if (IsNeverOpen()) return Width::kNarrow;
  const int spread = range.largest - range.smallest;
  if (IsDouble()) return format_.log2_range - spread < kFarBits64 ? Width::kFar : Width::kNarrow;
  if (format_.log2_range - spread >= kWideBits) return Width::kNarrow;
  if (half_wide_.log2_range - spread >= kWideBits) return Width::kHalfWide;
  return wide_.log2_range - spread >= kWideBits ? Width::kWide : Width::kFar;
}

const LowLanes* FloatTraffic::LowLanesOf(Width width) const {
  return width == Width::kHalfWide ? &half_wide_ : width == Width::kWide ? &wide_ : nullptr;
}

uint32_t FloatTraffic::OpenMask(const PacketExps& exps) const {
  if (IsNeverOpen()) return 0;
  uint32_t mask = 0;
  for (uint32_t b = 0; b < packet_blocks_; ++b) {
    if (WidthOf(exps, b) != Width::kNarrow) mask |= 1U << b;
  }
  return mask;
}

// The merged exponents of a packet are here, before it is quantised.
void FloatTraffic::Learn(uint64_t data_packet, const uint8_t* exps) {
  PacketExps& common = CommonOf(data_packet);
  std::memcpy(common.data(), exps, common.size());
  uint32_t open = OpenMask(common);
  counters_.wide_blocks.Add(static_cast<uint64_t>(std::popcount(open)));
  first_high_[data_packet % covered_] = high_sums_.size();
  for (; open != 0; open &= open - 1) {
    const auto b = static_cast<size_t>(std::countr_zero(open));
    const int largest = IsDouble() ? RangeOf64(common, b).largest : RangeOf(common, b).largest;
    const size_t first = data_packet * packet_elements_ + b * block_elements_;
    const size_t end = std::min<size_t>(first + block_elements_, spec_.count);
    const Width width = WidthOf(common, b);
    for (size_t at = first; at < end; at += kBlock64Elements) {
      if (width == Width::kFar) {
        far_.push_back({at / kBlock64Elements, largest});
      } else {
        (width == Width::kWide ? wide_ : half_wide_).blocks.push_back({at / kBlock64Elements, largest, high_sums_.size()});
        high_sums_.emplace_back();
      }
    }
  }
}

void FloatTraffic::Take(uint64_t packet, const mlnet_cell& cell) {
  if (IsProbe(packet)) {
    TakeProbe(packet, cell);
    return;
  }
  const uint64_t data_packet = packet - probes_;
  IsDouble() ? TakeLanes64(data_packet, cell) : TakeLanes(data_packet, cell);
  TakeReceipt(packet, cell);
}

void FloatTraffic::TakeReceipt(uint64_t packet, const mlnet_cell& cell) {
  const uint64_t data_packet = packet - probes_;
  if ((cell.flags & MLNET_F_NONFINITE) != 0) {
    flagged_.push_back(data_packet);
    counters_.nonfinite_packets.Add();
  }
  // The result also brought the exponents of the packet one pool later.
  if (data_packet + job_.slots < data_packets_) Learn(data_packet + job_.slots, cell.exps);
}

void FloatTraffic::TakeProbe(uint64_t probe, const mlnet_cell& cell) {
  const uint64_t first = probe * probe_covers_, end = std::min<uint64_t>(first + probe_covers_, covered_);
  const auto* bytes = reinterpret_cast<const uint8_t*>(cell.w);
  for (uint64_t packet = first; packet < end; ++packet) {
    Learn(packet, bytes + (packet - first) * MLNET_EXPS_BYTES);
  }
  probe_answered_[probe] = true;
}

void FloatTraffic::TakeLanes(uint64_t data_packet, const mlnet_cell& cell) {
  const size_t first = data_packet * packet_elements_, count = ElementsOf(data_packet);
  const PacketExps& common = CommonOf(data_packet);
  const uint32_t open = OpenMask(common);
  std::byte* place = window_.Place(first, count);
  if (open == 0 && place != nullptr && spec_.dtype == DataType::kFloat32) {
    Dequantize(cell.w, common, format_, cell.weight, {reinterpret_cast<float*>(place), count});
    return;
  }
  if (open != 0) TakeHigh(data_packet, cell);
  std::array<float, kPacketFloatsMax> sums;
  Dequantize(cell.w, common, format_, cell.weight, std::span(sums).first(count));
  for (size_t at = 0, b = 0; at < count; at += block_elements_, ++b) {
    // An open block is not copied out: its input is still needed.
    if ((open >> b & 1U) == 0) {
      StoreFloatSums(first + at, std::min<size_t>(block_elements_, count - at), &sums[at]);
    }
  }
}

void FloatTraffic::TakeHigh(uint64_t data_packet, const mlnet_cell& cell) {
  const PacketExps& common = CommonOf(data_packet);
  size_t high = first_high_[data_packet % covered_];
  for (size_t at = 0; at < ElementsOf(data_packet); at += kBlock64Elements) {
    if (LowLanesOf(WidthOf(common, at / block_elements_)) == nullptr) continue;
    std::memcpy(high_sums_[high++].data(), cell.w + at / 2, sizeof(HighSums));  // two lanes a word
  }
}

void FloatTraffic::TakeLanes64(uint64_t data_packet, const mlnet_cell& cell) {
  const size_t first = data_packet * packet_elements_, count = ElementsOf(data_packet);
  const PacketExps& common = CommonOf(data_packet);
  const uint32_t open = OpenMask(common);
  for (size_t at = 0, b = 0; at < count; at += block_elements_, ++b) {
    if ((open >> b & 1U) != 0) continue;
    std::array<double, 2 * kBlock64Elements> sums;
    const size_t n = std::min<size_t>(block_elements_, count - at);
    const int largest = RangeOf64(common, b).largest;
    for (size_t i = 0; i < n; ++i) {
      sums[i] = DequantizeOne64(cell.w[at + i], largest, format_.log2_range, cell.weight);
    }
    window_.Write(first + at, n, sums.data());
  }
}

void FloatTraffic::StoreFloatSums(size_t first, size_t count, const float* sums) {
  if (spec_.dtype == DataType::kFloat32) {
    window_.Write(first, count, sums);
    return;
  }
  std::array<uint16_t, kBlockFloatsMax> narrow;
  StoreFloats(spec_.dtype, sums, count, narrow.data());
  window_.Write(first, count, narrow.data());
}

size_t FloatTraffic::LoadBlock(uint64_t block, float* to) const {
  LoadFloats(spec_.dtype, At(FirstOf(block)), CountOf(block), to);
  return CountOf(block);
}

size_t FloatTraffic::LoadBlock(uint64_t block, double* to) const {
  std::memcpy(to, At(FirstOf(block)), CountOf(block) * sizeof(double));
  return CountOf(block);
}

// Results came in any order; the fix-up stream has one.
std::vector<std::unique_ptr<Traffic>> FloatTraffic::Repairs() {
  const auto by_block = [](const OpenBlock& a, const OpenBlock& b) { return a.block < b.block; };
  std::sort(flagged_.begin(), flagged_.end());
  std::sort(half_wide_.blocks.begin(), half_wide_.blocks.end(), by_block);
  std::sort(wide_.blocks.begin(), wide_.blocks.end(), by_block);
  std::sort(far_.begin(), far_.end(), by_block);
  std::vector<std::unique_ptr<Traffic>> repairs;
  if (!flagged_.empty()) repairs.push_back(std::make_unique<MarkTraffic>(*this, flagged_));
  for (const LowLanes* low : {&half_wide_, &wide_}) {
    if (!low->blocks.empty()) repairs.push_back(std::make_unique<WideTraffic>(*this, *low));
  }
  if (!far_.empty()) repairs.push_back(std::make_unique<FarTraffic>(*this, far_));
  return repairs;
}

void FloatTraffic::Finish() {
  for (const uint64_t packet : flagged_) {
    for (size_t i = 0; i < ElementsOf(packet); ++i) {
      if (const uint8_t mark = merged_marks_.Of(packet, i); mark != 0) {
        StoreSpecial(packet * packet_elements_ + i, mark);
      }
    }
  }
}

void FloatTraffic::StoreSpecial(size_t element, uint8_t mark) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double value = mark == kMarkNan    ? std::numeric_limits<double>::quiet_NaN()
                       : mark == kMarkPlus ? kInfinity
                                           : -kInfinity;
  if (IsDouble()) {
    window_.Write(element, 1, &value);
    return;
  }
  const auto narrow = static_cast<float>(value);
  StoreFloatSums(element, 1, &narrow);
}

}  // namespace mlnet::worker
