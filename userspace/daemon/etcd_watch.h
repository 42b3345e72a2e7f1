// SPDX-License-Identifier: Apache-2.0
// A thread that knows the store's generation and whether etcd answers, so that the loop need not ask: a watch on the
// generation's key, and once a second a linearizable read of it.
// Why the read: a member without a quorum keeps its watches open and silent, and so does a host that was unplugged.
// Why a thread: the read may take its time, and the loop is one thread that also has ranks to look after.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "base/fd.h"
#include "daemon/etcd_client.h"
#include "daemon/store_health.h"

namespace mlnet::daemon::etcd {

class Watch {
 public:
  /// Watches `key`, whose last revision is the generation.
  static Result<std::unique_ptr<Watch>> Start(const Options& options, const std::string& key, StoreHealth& health);
  ~Watch();

  int64_t generation() const { return generation_; }
  /// A generation that somebody saw in an answer.
  void Saw(int64_t generation);
  /// An outage that a call of the loop met: looked into at once.
  void SawOutage(const Error& error);

  /// Readable when the generation or the health has changed.
  int wake_fd() const { return wake_.get(); }
  void ClearWake();

 private:
  struct CloseMulti {
    void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
  };
  Watch(const Options& options, std::string key, StoreHealth& health, Fd wake);
  void Loop();
  Result<int64_t> Probe();
  void Follow(int64_t revision);
  bool Read(const std::string& line);
  void Compact(int64_t revision);
  void Pause();
  void Wake();

  Client client_;
  const std::string key_;
  const uint32_t compact_s_;
  StoreHealth& health_;
  Fd wake_;
  std::unique_ptr<CURLM, CloseMulti> multi_{curl_multi_init()};
  std::atomic<int64_t> generation_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<bool> is_urgent_ = false;  // the next probe
  int64_t compact_to_ = 0;               // revision of the last look, which is old enough by the next one
  std::chrono::steady_clock::time_point next_compact_;
  uint32_t num_failed_ = 0;              // probes in a row
  std::thread thread_;
};

}  // namespace mlnet::daemon::etcd
