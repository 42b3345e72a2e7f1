// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpc/message.h"

namespace mlnet::ctl {

std::string Paint(std::string text, Tone tone, bool use_color) {
  if (!use_color || tone == Tone::kPlain) return text;
  const char* code = "";
  switch (tone) {
    case Tone::kPlain:
      break;
    case Tone::kGood:
      code = "32";
      break;
    case Tone::kBad:
      code = "31";
      break;
    case Tone::kWarn:
      code = "33";
      break;
    case Tone::kDim:
      code = "2";
      break;
    case Tone::kBold:
      code = "1";
      break;
  }
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

bool Table::IsRight(size_t column) const {
  return std::find(right_.begin(), right_.end(), column) != right_.end();
}

Tone Table::ToneOf(size_t row, size_t column) const {
  for (const CellTone& cell : tones_) {
    if (cell.row == row && cell.column == column) return cell.tone;
  }
  return Tone::kPlain;
}

std::string Table::Render(bool use_color, int indent) const {
  std::vector<size_t> widths(header_.size(), 0);
  const auto measure = [&](const std::vector<std::string>& row) {
    for (size_t c = 0; c < row.size() && c < widths.size(); ++c)
      widths[c] = std::max(widths[c], row[c].size());
  };
  measure(header_);
  for (const auto& row : rows_) measure(row);

  std::string out;
  const auto render = [&](const std::vector<std::string>& row, auto tone_of) {
    std::string line(static_cast<size_t>(indent), ' ');
    size_t pending = 0;  // blanks that are written only when text follows, so no line ends in blanks
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string text = c < row.size() ? row[c] : "";
      const size_t fill = widths[c] - text.size();
      const bool right = IsRight(c);
      if (!text.empty()) {
        line += std::string(pending + (right ? fill : 0), ' ') + Paint(text, tone_of(c), use_color);
        pending = right ? 0 : fill;
      } else {
        pending += fill;
      }
      pending += 2;
    }
    out += line + "\n";
  };
  render(header_, [](size_t) { return Tone::kDim; });
  for (size_t r = 0; r < rows_.size(); ++r) {
    render(rows_[r], [&](size_t c) { return ToneOf(r, c); });
  }
  return out;
}

std::string Text(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || it == object.end() || it->is_null()) return "-";
  if (it->is_boolean()) return it->get<bool>() ? "yes" : "no";
  if (it->is_string()) return it->get_ref<const std::string&>().empty() ? "-" : it->get<std::string>();
  return rpc::Dump(*it);
}

const Json& Items(const Json& object, const char* key) {
  static const Json kEmpty = Json::array();
  const auto it = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && it != object.end() && it->is_array() ? *it : kEmpty;
}

uint64_t Number(const Json& object, const char* key) { return rpc::GetOr<uint64_t>(object, key, 0).value_or(0); }

std::string Duration(uint64_t seconds) {
  const uint64_t days = seconds / 86400, hours = seconds / 3600 % 24, minutes = seconds / 60 % 60;
  if (days > 0) return fmt::format("{} d {} h", days, hours);
  if (hours > 0) return fmt::format("{} h {} min", hours, minutes);
  if (minutes > 0) return fmt::format("{} min {} s", minutes, seconds % 60);
  return fmt::format("{} s", seconds);
}

std::string LinkSpeed(int64_t mbps) {
  if (mbps <= 0) return "-";
  if (mbps % 1000 == 0) return fmt::format("{} Gb/s", mbps / 1000);
  return fmt::format("{} Mb/s", mbps);
}

std::string Bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 1000.0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace mlnet::ctl
