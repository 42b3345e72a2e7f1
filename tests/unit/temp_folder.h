// SPDX-License-Identifier: Apache-2.0
// A folder of one test; removed with everything in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace mlnet::test {

class TempFolder {
 public:
  TempFolder() {
    char folder[] = "/tmp/mlnet-test-XXXXXX";
    path_ = ::mkdtemp(folder);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace mlnet::test
