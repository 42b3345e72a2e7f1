// SPDX-License-Identifier: Apache-2.0
// Calls to etcd's v3 JSON gateway over libcurl: one thread, one connection, the next endpoint where one does not answer.
#pragma once

#include <curl/curl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "control/config.h"
#include "daemon/etcd_json.h"
#include "mlnet/error.h"

namespace mlnet::daemon::etcd {

struct Options {
  static Result<Options> Read(const control::EtcdConfig& config);  // the password, too

  control::EtcdConfig config;
  std::string password;
};

// One endpoint has this long to answer, and a call as a whole that long: so long does the daemon's loop stand still at
// most when an outage begins. An election of etcd takes one to two seconds.
inline constexpr std::chrono::milliseconds kTryTimeout{1000};
inline constexpr std::chrono::milliseconds kConnectTimeout{500};
inline constexpr std::chrono::milliseconds kCallTimeout{2000};

/// No endpoint answered, or none that had a quorum: the call may or may not have been carried out, now or later.
/// Other errors are etcd's refusal.
inline bool IsOutage(const Error& error) { return error.code == ErrorCode::kUnavailable; }
/// The lease that a key was to be bound to has expired.
inline bool IsLeaseGone(const Error& error) { return error.code == ErrorCode::kConflict; }

/// A transfer with all that it points to.
struct Transfer {
  struct CloseEasy {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  };
  struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  std::string body;
  std::unique_ptr<curl_slist, FreeList> headers;
  std::unique_ptr<CURL, CloseEasy> easy{curl_easy_init()};  // keeps its connection from one use to the next
};

class Client {
 public:
  explicit Client(Options options);

  /// POST /v3/`path`.
  Result<Json> Call(const std::string& path, const Json& body, std::chrono::milliseconds timeout = kCallTimeout);

  /// Which endpoint answered last.
  const std::string& endpoint() const { return options_.config.endpoints[preferred_]; }
  /// Makes `transfer` one of this request, to that endpoint and with no limit of time.
  void Prepare(Transfer& transfer, const std::string& path, const Json& body);
  /// Asked about once a second during a call, and ends it where it is true.
  void AbortWhen(const std::atomic<bool>* is_stopping) { is_stopping_ = is_stopping; }

 private:
  Result<Json> Try(const std::string& path, const Json& body, std::chrono::milliseconds timeout);
  Result<Json> Perform(const std::string& path, const Json& body, std::chrono::milliseconds timeout);
  Result<void> Authenticate(std::chrono::milliseconds timeout);
  bool IsStopping() const { return is_stopping_ != nullptr && *is_stopping_; }
  static int OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t);

  Options options_;
  size_t preferred_ = 0;
  std::string token_;  // of `user`; empty: to be asked for
  Transfer transfer_;
  const std::atomic<bool>* is_stopping_ = nullptr;
};

/// What curl calls with bytes that came: they go to the end of the std::string that `out` is.
size_t AppendTo(char* bytes, size_t size, size_t count, void* out);

}  // namespace mlnet::daemon::etcd
