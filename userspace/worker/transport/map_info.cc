// SPDX-License-Identifier: Apache-2.0
#include "transport/map_info.h"

#include <fstream>
#include <string>

namespace mlnet::worker {

Result<size_t> MapMaxEntries(int fd) {
  std::ifstream file("/proc/self/fdinfo/" + std::to_string(fd));
  std::string key;
  size_t value = 0;
  while (file >> key) {
    if (key == "max_entries:" && file >> value) return value;
  }
  return Err(ErrorCode::kProtocol, "descriptor " + std::to_string(fd) + " from mlnetd is not a BPF map",
             "run the same mlnet version of daemon and library");
}

}  // namespace mlnet::worker
