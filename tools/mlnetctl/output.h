// SPDX-License-Identifier: Apache-2.0
// What a human reads: aligned tables, colours, sizes and durations as text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mlnet::ctl {

using Json = nlohmann::json;

enum class Tone { kPlain, kGood, kBad, kWarn, kDim, kBold };

/// `text` in the tone's colour, or as it is when colours are off.
std::string Paint(std::string text, Tone tone, bool use_color);

/// Columns as wide as their widest cell, two spaces apart; no trailing blanks. Numbers go to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Makes a column right-aligned.
  void AlignRight(size_t column) { right_.push_back(column); }
  /// The tone of one cell that has been added last.
  void PaintLast(size_t column, Tone tone) { tones_.push_back({rows_.size() - 1, column, tone}); }
  bool empty() const { return rows_.empty(); }
  std::string Render(bool use_color, int indent = 0) const;

 private:
  struct CellTone {
    size_t row, column;
    Tone tone;
  };
  bool IsRight(size_t column) const;
  Tone ToneOf(size_t row, size_t column) const;

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
  std::vector<CellTone> tones_;
};

/// A member of an object as text: strings as they are, numbers in decimal, yes/no, "-" when it is absent.
std::string Text(const Json& object, const char* key);

/// The array member `key`, or an empty array.
const Json& Items(const Json& object, const char* key);

/// A member of an object that is a count; 0 where it is absent or something else.
uint64_t Number(const Json& object, const char* key);

/// "3 d 4 h", "12 min 5 s", "8 s".
std::string Duration(uint64_t seconds);
/// "10 Gb/s", "500 Mb/s"; "-" for 0 or less.
std::string LinkSpeed(int64_t mbps);
/// "1.4 GB", "12 kB": powers of 1000.
std::string Bytes(double bytes);

}  // namespace mlnet::ctl
