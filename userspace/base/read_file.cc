// SPDX-License-Identifier: Apache-2.0
#include "base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/errno_error.h"
#include "base/fd.h"

namespace mlnet {

Result<std::string> ReadFile(const std::string& path, const std::string& hint) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return tl::make_unexpected(ErrnoError("read " + path, errno, hint));
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t n = ::read(file.get(), part.data(), part.size());
    if (n == 0) return text;
    if (n > 0) text.append(part.data(), static_cast<size_t>(n));
    else if (errno != EINTR) return tl::make_unexpected(ErrnoError("read " + path, errno, hint));
  }
}

}  // namespace mlnet
