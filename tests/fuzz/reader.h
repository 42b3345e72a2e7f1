// SPDX-License-Identifier: Apache-2.0
// The input of a target, taken piece by piece; zeros and empty texts behind its end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace mlnet::fuzz {

class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
  bool IsAtEnd() const { return at_ == end_; }
  uint8_t Byte() { return IsAtEnd() ? uint8_t{0} : *at_++; }
  uint16_t Half() {
    const uint8_t low = Byte();
    return static_cast<uint16_t>(low | Byte() << 8);
  }
  std::vector<uint8_t> Take(size_t size) {
    const size_t n = std::min<size_t>(size, static_cast<size_t>(end_ - at_));
    at_ += n;
    return {at_ - n, at_};
  }
  /// Up to the next newline, which is left out.
  std::string Line() {
    const uint8_t* stop = std::find(at_, end_, uint8_t{'\n'});
    std::string line(at_, stop);
    at_ = stop == end_ ? end_ : stop + 1;
    return line;
  }
  std::string Rest() {
    std::string rest(at_, end_);
    at_ = end_;
    return rest;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

}  // namespace mlnet::fuzz
