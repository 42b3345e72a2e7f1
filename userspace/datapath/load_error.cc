// SPDX-License-Identifier: Apache-2.0
#include "datapath/load_error.h"

#include <bpf/libbpf.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <sstream>
#include <string_view>

#include "base/errno_error.h"

namespace mlnet::datapath {
namespace {

constexpr size_t kLinesShown = 3;  // the instruction that the verifier stopped at, and why

struct Said {
  std::string last;      // warning
  std::string verifier;  // its log
};

Said& Heard() {
  thread_local Said said;
  return said;
}

void Trim(std::string& text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
}

// The log comes as one warning, between marks.
int Hear(libbpf_print_level level, const char* format, va_list args) {
  if (level != LIBBPF_WARN) return 0;
  va_list again;
  va_copy(again, args);
  std::string text(static_cast<size_t>(std::max(0, std::vsnprintf(nullptr, 0, format, again))), '\0');
  va_end(again);
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  constexpr std::string_view kBegin = "BEGIN PROG LOAD LOG --", kEnd = "-- END PROG LOAD LOG";
  const size_t begin = text.find(kBegin), end = text.rfind(kEnd);
  if (begin != std::string::npos && end != std::string::npos) {
    Heard().verifier = text.substr(begin + kBegin.size(), end - begin - kBegin.size());
  } else {
    Heard().last = text;
  }
  Trim(Heard().last);
  return 0;
}

// Without the statistics that a log ends with.
std::string LastWords(const std::string& log) {
  std::deque<std::string> lines;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.starts_with("processed ")) continue;
    lines.push_back(line);
    if (lines.size() > kLinesShown) lines.pop_front();
  }
  std::string words;
  for (const std::string& line : lines) words += (words.empty() ? "" : " | ") + line;
  return words;
}

}  // namespace

void BeginLoad() {
  libbpf_set_print(Hear);
  Heard() = {};
}

Error LoadError(const std::string& what, int err) {
  if (const std::string words = LastWords(Heard().verifier); !words.empty()) {
    utsname kernel{};
    ::uname(&kernel);
    return Error{ErrorCode::kUnsupported, what + ": the verifier refuses them: " + words,
                 std::string("mlnet needs kernel 6.1 or later, this is ") + kernel.release + "; if it is newer, this is a bug of mlnet"};
  }
  const std::string detail = Heard().last.empty() ? "" : " (" + Heard().last + ")";
  if (err == EPERM || err == EACCES) {
    return ErrnoError(what + detail, err, "run mlnetd as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON");
  }
  Error error = ErrnoError(what + detail, err, "mlnet needs kernel 6.1 or later with BTF");
  if (err == EINVAL || err == E2BIG) error.code = ErrorCode::kUnsupported;
  return error;
}

}  // namespace mlnet::datapath
