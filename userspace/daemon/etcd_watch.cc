// SPDX-License-Identifier: Apache-2.0
#include "daemon/etcd_watch.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/errno_error.h"
#include "rpc/message.h"

namespace mlnet::daemon::etcd {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kProbeEvery{1000};
constexpr uint32_t kPauseMinMs = 50, kPauseMaxMs = 1000;

uint64_t WallMs() {
  using namespace std::chrono;
  return static_cast<uint64_t>(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
}

// Half to all of it: daemons that met the same outage do not come back in step.
milliseconds Jittered(uint32_t ms) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return milliseconds{std::uniform_int_distribution<uint32_t>{ms / 2, ms}(random)};
}

}  // namespace

Result<std::unique_ptr<Watch>> Watch::Start(const Options& options, const std::string& key, StoreHealth& health) {
  Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return tl::make_unexpected(ErrnoError("eventfd", errno));
  return std::unique_ptr<Watch>(new Watch(options, key, health, std::move(wake)));
}

Watch::Watch(const Options& options, std::string key, StoreHealth& health, Fd wake)
    : client_(options), key_(std::move(key)), compact_s_(options.config.compact_s), health_(health), wake_(std::move(wake)) {
  client_.AbortWhen(&is_stopping_);
  // Signals are the daemon's: one that came to this thread would end the process.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Loop(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watch::~Watch() {
  is_stopping_ = true;
  curl_multi_wakeup(multi_.get());
  thread_.join();
}

void Watch::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof(one));  // full: it is readable anyway
}

void Watch::ClearWake() {
  uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof(count));  // nothing there: nothing to clear
}

void Watch::Saw(int64_t generation) {
  int64_t known = generation_;
  while (known < generation && !generation_.compare_exchange_weak(known, generation)) continue;
  if (known < generation) Wake();
}

void Watch::SawOutage(const Error& error) {
  if (health_.MarkDown(error.message, WallMs())) Wake();
  is_urgent_ = true;
  curl_multi_wakeup(multi_.get());
}

void Watch::Pause() {
  const uint32_t ms = std::min(kPauseMaxMs, kPauseMinMs << std::min(num_failed_, 5u));
  curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(Jittered(ms).count()), nullptr);
}

void Watch::Loop() {
  while (!is_stopping_) {
    const auto revision = Probe();
    if (revision) Follow(*revision);
    else if (!is_stopping_) Pause();
  }
}

// The revision that etcd as a whole is at; an outage begins or ends here, too.
Result<int64_t> Watch::Probe() {
  is_urgent_ = false;
  // An etcd whose quota is full still reads: an outage is over when it writes.
  std::vector<Json> operations = {Get(key_)};
  if (!health_.Outage().empty()) operations.push_back(Put(key_ + ".probe", ""));
  const int64_t known = generation_;
  auto answer = client_.Call("kv/txn", Txn({}, std::move(operations)));
  if (!answer) {
    ++num_failed_;
    if (!is_stopping_ && health_.MarkDown(answer.error().message, WallMs())) Wake();
    return tl::make_unexpected(answer.error());
  }
  num_failed_ = 0;
  const auto found = ReadBy(*answer, 0);
  const int64_t generation = found.empty() ? 0 : found[0].mod_revision;
  const int64_t revision = Revision(*answer);
  if (revision < known) generation_ = -1;  // it was wiped, or is a backup of before: it counts anew
  Saw(generation);
  if (health_.MarkUp(WallMs())) Wake();
  Compact(revision);
  return revision;
}

// Each heartbeat is a revision, and etcd keeps them all until it is told not to: a day of them fills its quota.
void Watch::Compact(int64_t revision) {
  const auto now = steady_clock::now();
  if (compact_s_ == 0 || now < next_compact_) return;
  next_compact_ = now + Jittered(2000 * compact_s_);
  // Another daemon may have done it, or the user may not: neither is of consequence here.
  if (compact_to_ > 0) client_.Call("kv/compaction", {{"revision", std::to_string(compact_to_)}});
  compact_to_ = revision;
}

// Reads the stream until it ends or a probe fails: then everything begins again, perhaps with another endpoint.
void Watch::Follow(int64_t revision) {
  Transfer stream;
  std::string text;
  client_.Prepare(stream, "watch", {{"create_request", {{"key", ToBase64(key_)}, {"start_revision", std::to_string(revision + 1)}}}});
  curl_easy_setopt(stream.easy.get(), CURLOPT_WRITEFUNCTION, &AppendTo);
  curl_easy_setopt(stream.easy.get(), CURLOPT_WRITEDATA, &text);
  curl_multi_add_handle(multi_.get(), stream.easy.get());
  const std::string endpoint = client_.endpoint();
  auto next_probe = steady_clock::now() + kProbeEvery;
  int num_running = 1;
  bool is_good = true;
  while (is_good && num_running > 0 && !is_stopping_) {
    if (is_urgent_ || steady_clock::now() >= next_probe) {
      next_probe = steady_clock::now() + kProbeEvery;
      if (!Probe() || client_.endpoint() != endpoint) break;
    }
    curl_multi_perform(multi_.get(), &num_running);
    for (size_t end; is_good && (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) is_good = Read(text.substr(0, end));
    const auto left = std::chrono::duration_cast<milliseconds>(next_probe - steady_clock::now());
    if (is_good && num_running > 0) curl_multi_poll(multi_.get(), nullptr, 0, std::max(0, static_cast<int>(left.count())), nullptr);
  }
  curl_multi_remove_handle(multi_.get(), stream.easy.get());
  // A stream that ends as soon as it began must not make this a busy loop.
  if (!is_stopping_ && client_.endpoint() == endpoint) Pause();
}

bool Watch::Read(const std::string& line) {
  const auto message = rpc::ParseJson(line);
  const auto latest = message ? LatestOf(*message) : std::nullopt;
  if (!latest) return false;
  Saw(*latest);
  return true;
}

}  // namespace mlnet::daemon::etcd
