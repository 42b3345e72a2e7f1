// SPDX-License-Identifier: Apache-2.0
#include "daemon/job_key.h"

#include <sys/random.h>

#include <cerrno>

#include "base/errno_error.h"

namespace mlnet::daemon {

Result<std::string> MakeJobKey(const control::JobSpec& spec) {
  wire::JobKey key{};
  if (!spec.mac) return std::string();
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return tl::make_unexpected(ErrnoError("getrandom for the job's key", errno));
  }
  return wire::ToHex(key);
}

std::shared_ptr<const mlnet_key> KeyOf(const control::JobView& view) {
  const auto key = wire::KeyFromHex(view.job.key);
  if (!key) return nullptr;
  return std::make_shared<const mlnet_key>(wire::DeriveKey(*key, view.job.plan.job_id, view.job.plan.epoch));
}

}  // namespace mlnet::daemon
