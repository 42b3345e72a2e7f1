// SPDX-License-Identifier: Apache-2.0
#include "hysteresis.h"

#include <filesystem>
#include <fstream>
#include <string>

namespace mlnet::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kParameter = "/sys/module/sch_htb/parameters/htb_hysteresis";
constexpr const char* kLabs = "/run/mlnet-lab";
// Hidden: no lab's name begins with a dot.
constexpr const char* kOldValue = "/run/mlnet-lab/.htb_hysteresis";

std::string ReadWord(const char* path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

bool IsAnyLabLeft() {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(kLabs, ec)) {
    if (entry.is_directory(ec) && entry.path().extension() != ".failed") return true;
  }
  return false;
}

}  // namespace

void BorrowHysteresis() {
  const std::string now = ReadWord(kParameter);
  if (now.empty() || now == "1") return;
  std::ofstream(kOldValue) << now << '\n';  // first: a crash in between restores what is there anyway
  std::ofstream(kParameter) << "1\n";
}

void ReturnHysteresis() {
  std::error_code ec;
  if (!fs::exists(kOldValue, ec) || IsAnyLabLeft()) return;
  std::ofstream(kParameter) << ReadWord(kOldValue) << '\n';
  fs::remove(kOldValue, ec);
}

}  // namespace mlnet::lab
