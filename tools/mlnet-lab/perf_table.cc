// SPDX-License-Identifier: Apache-2.0
#include "perf_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mlnet-perf/element_type.h"
#include "mlnet-perf/names.h"

namespace mlnet::lab {

double PercentileUs(std::vector<uint64_t> times_ns, double percent) {
  if (times_ns.empty()) return 0;
  std::sort(times_ns.begin(), times_ns.end());
  const double position = std::ceil(percent / 100.0 * static_cast<double>(times_ns.size()));
  const size_t index = static_cast<size_t>(std::max(position, 1.0)) - 1;
  return static_cast<double>(times_ns[std::min(index, times_ns.size() - 1)]) / 1000.0;
}

uint64_t PerfRow::Bytes() const { return count * perf::TypeOf(dtype).bytes; }

double PerfRow::AlgorithmMBps() const {
  const double us = PercentileUs(times_ns, 50);
  return us > 0 ? static_cast<double>(Bytes()) / us : 0;  // bytes per microsecond are MB/s
}

uint64_t PerfRow::CoreBytes() const { return spent.core_bytes / std::max<size_t>(times_ns.size(), 1); }

double PerfRow::PayloadBytes() const {
  const auto elements = static_cast<double>(count);
  if (!has_kernel_counters) {
    const double bytes = backend == "gloo-fp16" ? 2 : static_cast<double>(perf::TypeOf(dtype).bytes);
    return elements * bytes * 2 * (ranks - 1) / ranks;
  }
  const bool is_narrow = wire == "int16" || wire == "int8";
  return elements * (is_narrow ? wire == "int16" ? 2 : 1 : static_cast<double>(std::max<size_t>(perf::TypeOf(dtype).bytes, 4)));
}

std::optional<double> PerfRow::LinkPercent() const {
  const double us = PercentileUs(times_ns, 50);
  if (link_bps == 0 || us <= 0) return std::nullopt;
  return 100 * PayloadBytes() * 8 / (us / 1e6 * static_cast<double>(link_bps));
}

double PerfRow::SecondsPerGB(uint64_t ns) const {
  const double bytes = static_cast<double>(Bytes()) * static_cast<double>(times_ns.size());
  return bytes > 0 ? static_cast<double>(ns) / bytes : 0;  // ns per byte are s per GB
}

double PerfRow::BusMBps() const { return AlgorithmMBps() * 2.0 * (ranks - 1) / ranks; }

namespace {

// Each round tunes anew, and the fastest algorithm need not be the same: a row names all that it is made of.
void AddVariant(const std::string& variant, std::string& names) {
  const std::string separator = ", ";
  if ((separator + names + separator).find(separator + variant + separator) != std::string::npos) return;
  names += (names.empty() ? "" : separator) + variant;
}

}  // namespace

void MergeTurn(const std::vector<std::vector<perf::RankRow>>& ranks, const PerfRow& shape,
               std::vector<PerfRow>& rows) {
  for (size_t i = 0; i < ranks.front().size(); ++i) {
    if (rows.size() <= i) {
      rows.push_back(shape);
      rows.back().count = ranks.front()[i].count;
    }
    PerfRow& row = rows[i];
    AddVariant(ranks.front()[i].variant, row.variant);
    std::vector<uint64_t> slowest(ranks.front()[i].times_ns.size(), 0);
    for (const auto& of_rank : ranks) {
      for (size_t t = 0; t < slowest.size(); ++t) slowest[t] = std::max(slowest[t], of_rank[i].times_ns[t]);
      row.wrong += of_rank[i].wrong;
      row.checked += of_rank[i].checked;
      row.retransmits += of_rank[i].retransmits;
      row.summed_in_kernel += of_rank[i].summed_in_kernel;
      row.summed_in_user_space += of_rank[i].summed_in_user_space;
      row.cpu += of_rank[i].cpu;
      row.memory_bytes = std::max(row.memory_bytes, of_rank[i].memory_bytes);
    }
    row.round_us.push_back(PercentileUs(slowest, 50));
    row.times_ns.insert(row.times_ns.end(), slowest.begin(), slowest.end());
  }
}

namespace {

// What a row is, beside its type: the wire type and shape of mlnet, where ranks are.
std::string NameOf(const PerfRow& row) {
  std::string name = row.backend;
  for (const std::string& part : {row.wire, row.shape, row.placement == "racks" ? "" : row.placement}) {
    if (!part.empty()) name += " " + part;
  }
  return name;
}

std::string HowOf(const PerfRow& row) {
  std::string how = row.variant.empty() ? row.shape : row.variant;
  if (row.placement != "racks") how += (how.empty() ? "" : ", ") + row.placement;
  return how;
}

Json LinksToJson(const PerfRow& row) {
  const uint64_t collectives = std::max<size_t>(row.times_ns.size(), 1);
  Json links = Json::object();
  for (const auto& [name, bytes] : row.spent.links) {
    links[name] = {{"tx_bytes", bytes.tx ? Json(*bytes.tx / collectives) : Json()}, {"rx_bytes", bytes.rx / collectives}};
  }
  return links;
}

}  // namespace

std::string RenderTable(const std::vector<PerfRow>& rows) {
  std::string text;
  const auto add = [&text](std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  const auto heading = [&add](auto... column) {
    add(fmt::format("# {:>10} {:>11} {:>8} {:>6} {:>7} {:>6} {:>7} {:>12} {:>12} {:>11} {:>11} {:>11} {:>4} {:>6} {:>6} {:>5} {:>7}  {}",
                    column...));
  };
  heading("size", "count", "type", "redop", "backend", "wire", "bound", "time p50", "time p99", "algbw",
          "busbw", "core", "cpu", "link", "cpu/GB", "mem", "#wrong", "algorithm");
  heading("(B)", "(elements)", "", "", "", "", "", "(us)", "(us)", "(MB/s)", "(MB/s)", "(B)", "(%)", "(%)", "(s)", "(MiB)", "", "");
  for (const PerfRow& row : rows) {
    add(fmt::format(
        "  {:>10} {:>11} {:>8} {:>6} {:>7} {:>6} {:>7} {:>12.1f} {:>12.1f} {:>11.2f} {:>11.2f} {:>11} {:>4.0f} {:>6} {:>6.2f} {:>5.0f} {:>7}  {}",
        row.Bytes(), row.count, perf::TypeOf(row.dtype).name, perf::OpName(row.op), row.backend,
        row.wire.empty() ? "-" : row.wire, row.bound.empty() ? "-" : row.bound,
        PercentileUs(row.times_ns, 50), PercentileUs(row.times_ns, 99), row.AlgorithmMBps(), row.BusMBps(),
        row.has_racks ? std::to_string(row.CoreBytes()) : "-", row.spent.CpuPercent(),
        row.LinkPercent() ? fmt::format("{:.1f}", *row.LinkPercent()) : "-", row.SecondsPerGB(row.cpu.user_ns + row.cpu.system_ns),
        static_cast<double>(row.memory_bytes) / (1 << 20), row.wrong, HowOf(row)));
  }
  return text;
}

namespace {

// Between rounds, which both had one after the other: how far the ratio can be believed.
std::string SpreadOf(const PerfRow& own, const PerfRow& peer) {
  const size_t rounds = std::min(own.round_us.size(), peer.round_us.size());
  if (rounds < 2) return "";
  double least = std::numeric_limits<double>::max(), most = 0;
  for (size_t i = 0; i < rounds; ++i) {
    least = std::min(least, peer.round_us[i] / own.round_us[i]);
    most = std::max(most, peer.round_us[i] / own.round_us[i]);
  }
  return fmt::format(" (rounds: {:.2f} to {:.2f})", least, most);
}

}  // namespace

std::string RenderComparison(const std::vector<PerfRow>& rows) {
  std::string text;
  for (const PerfRow& peer : rows) {
    if (peer.backend == rows.front().backend) continue;
    for (const PerfRow& own : rows) {
      const double own_us = PercentileUs(own.times_ns, 50);
      if (own.backend != rows.front().backend || own.count != peer.count || own_us <= 0) continue;
      text += fmt::format("# {} bytes: {} is {:.2f} x as fast as {}{}\n", peer.Bytes(), NameOf(own),
                          PercentileUs(peer.times_ns, 50) / own_us, NameOf(peer), SpreadOf(own, peer));
    }
  }
  return text;
}

Json RowsToJson(const std::vector<PerfRow>& rows) {
  const auto rounded = [](double value) { return std::round(value * 1000.0) / 1000.0; };
  Json list = Json::array();
  for (const PerfRow& row : rows) {
    Json entry = {{"backend", row.backend},
                  {"wire", row.wire.empty() ? Json() : Json(row.wire)},
                  {"bound", row.bound.empty() ? Json() : Json(row.bound)},
                  {"shape", row.shape.empty() ? Json() : Json(row.shape)},
                  {"placement", row.placement},
                  {"algorithm", row.variant.empty() ? Json() : Json(row.variant)},
                  {"ranks", row.ranks},
                  {"bytes", row.Bytes()},
                  {"count", row.count},
                  {"dtype", perf::TypeOf(row.dtype).name},
                  {"op", perf::OpName(row.op)},
                  {"iterations", row.times_ns.size()},
                  {"time_us_p50", rounded(PercentileUs(row.times_ns, 50))},
                  {"time_us_p99", rounded(PercentileUs(row.times_ns, 99))},
                  {"time_us_min", rounded(PercentileUs(row.times_ns, 0))},
                  {"time_us_max", rounded(PercentileUs(row.times_ns, 100))},
                  {"algbw_MBps", rounded(row.AlgorithmMBps())},
                  {"busbw_MBps", rounded(row.BusMBps())},
                  {"wrong", row.wrong},
                  {"checked", row.checked},
                  {"retransmits", row.retransmits}};
    // A peer has no such counters: null, not a number that could be mistaken for a measurement.
    entry["summed_in_kernel"] = row.has_kernel_counters ? Json(row.summed_in_kernel) : Json();
    entry["summed_in_user_space"] = row.has_kernel_counters ? Json(row.summed_in_user_space) : Json();
    entry["core_bytes"] = row.has_racks ? Json(row.CoreBytes()) : Json();
    entry["links"] = LinksToJson(row);
    entry["time_us_p25"] = rounded(PercentileUs(row.times_ns, 25));
    entry["time_us_p75"] = rounded(PercentileUs(row.times_ns, 75));
    entry["round_us_p50"] = Json::array();
    for (const double us : row.round_us) entry["round_us_p50"].push_back(rounded(us));
    entry["link_percent"] = row.LinkPercent() ? Json(rounded(*row.LinkPercent())) : Json();
    entry["cpu_s_per_GB"] = {{"user", rounded(row.SecondsPerGB(row.cpu.user_ns))},
                             {"system", rounded(row.SecondsPerGB(row.cpu.system_ns))},
                             {"machine", rounded(row.SecondsPerGB(row.cpu.busy_ns))},
                             {"machine_softirq", rounded(row.SecondsPerGB(row.cpu.softirq_ns))}};
    entry["memory_bytes"] = row.memory_bytes;
    entry["cpu_percent"] = rounded(row.spent.CpuPercent());
    list.push_back(std::move(entry));
  }
  return list;
}

uint64_t WrongOf(const std::vector<PerfRow>& rows) {
  uint64_t wrong = 0;
  for (const PerfRow& row : rows) wrong += row.wrong;
  return wrong;
}

}  // namespace mlnet::lab
