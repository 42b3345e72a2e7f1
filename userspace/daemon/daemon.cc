// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "base/errno_error.h"
#include "control/job.h"
#include "control/ring.h"
#include "daemon/probe.h"

namespace mlnet::daemon {
namespace {

// How soon a change that another daemon made is seen.
constexpr int kPendingMs = 20;  // somebody waits for it
constexpr int kActiveMs = 50;
constexpr int kIdleMs = 100;

Result<Fd> BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return tl::make_unexpected(ErrnoError("signalfd", errno));
  return fd;
}

Result<void> Watch(int epoll, int fd) {
  epoll_event event{EPOLLIN, {.fd = fd}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return tl::make_unexpected(ErrnoError("epoll_ctl", errno));
  return {};
}

}  // namespace

Daemon::Daemon(control::Config config, std::unique_ptr<Store> store, datapath::PinFolder pins, Loaded loaded)
    : config_(std::move(config)),
      store_(std::move(store)),
      pins_(std::move(pins)),
      program_(std::move(loaded.program)),
      takes_over_(loaded.is_over),
      nic_state_(config_.state_dir, config_.instance),
      qos_(nic_state_),
      ifaces_(program_, pins_.path(), nic_state_),
      jobs_(program_, ifaces_, config_.host) {}

Daemon::~Daemon() = default;

Result<std::unique_ptr<Daemon>> Daemon::Start(const control::Config& config) {
  if (auto ok = CheckCapabilities(); !ok) return tl::make_unexpected(ok.error());
  auto pins = datapath::PinFolder::Take(config.pin_root, config.instance);
  if (!pins) return tl::make_unexpected(pins.error());
  auto store = OpenStore(config);
  if (!store) return tl::make_unexpected(store.error());
  auto loaded = LoadProgram(config, **store, *pins);
  if (!loaded) return tl::make_unexpected(loaded.error());
  if (auto ok = loaded->program.Pin(pins->path()); !ok) return tl::make_unexpected(ok.error());
  std::unique_ptr<Daemon> daemon(new Daemon(config, std::move(*store), std::move(*pins), std::move(*loaded)));
  if (auto ok = daemon->Open(); !ok) return tl::make_unexpected(ok.error());
  return daemon;
}

Result<void> Daemon::Open() {
  started_ms_ = NowMs();
  auto events = datapath::EventReader::Open(program_, [this](const mlnet_event& e) { OnEvent(e); });
  if (!events) return tl::make_unexpected(events.error());
  events_ = std::move(*events);
  auto signals = BlockSignals();
  if (!signals) return tl::make_unexpected(signals.error());
  signals_ = std::move(*signals);
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return tl::make_unexpected(ErrnoError("epoll_create1", errno));
  OpenTagger();
  for (const control::IfaceConfig& iface : config_.ifaces) ifaces_.Want(iface);
  ifaces_.WantAsBefore(takes_over_);
  ifaces_.Reconcile();
  if (!config_.local_address.empty() || !config_.local_address6.empty()) {
    // Not fatal: this host then sums only for others.
    const auto ok = ifaces_.OpenLocalLink(config_.local_address, config_.local_address6, config_.instance, takes_over_);
    if (!ok) spdlog::warn("no local link: {}", ok.error().ToString());
  }
  if (auto ok = TakeOverJobs(); !ok) return ok;
  Pass();
  return Listen();
}

Result<void> Daemon::Listen() {
  std::error_code ec;
  std::filesystem::create_directories(std::filesystem::path(config_.socket).parent_path(), ec);
  auto server = rpc::Server::Listen(config_.socket, config_.socket_mode);
  if (!server) return tl::make_unexpected(server.error());
  server_.emplace(std::move(*server));
  std::vector<int> fds = {server_->poll_fd(), events_->poll_fd(), signals_.get()};
  if (store_->wake_fd() >= 0) fds.push_back(store_->wake_fd());
  for (const int fd : fds) {
    if (auto ok = Watch(epoll_.get(), fd); !ok) return ok;
  }
  // From now on they can come.
  for (auto& [peer, session] : sessions_) session.absent_until_ms = NowMs() + config_.reconnect_ms;
  return {};
}

// Not fatal: packets then keep the DSCP that libmlnet sets.
void Daemon::OpenTagger() {
  if (takes_over_) {
    qos_.TakeOver();
  } else {
    qos_.Undo();
    UndoTags(nic_state_);
  }
  if (config_.priority.attach == "off") return;
  auto tagger = datapath::Tagger::Load(program_, pins_.path());
  if (tagger) ifaces_.UseTagger(std::move(*tagger), config_.priority.attach);
  else spdlog::warn("packets keep the DSCP that processes set: {}", tagger.error().ToString());
}

int Daemon::WaitMs() const {
  const bool is_pending = std::any_of(sessions_.begin(), sessions_.end(), [](const auto& s) { return s.second.request_id != 0; });
  if (is_pending || !waiting_.empty()) return kPendingMs;
  int wait = jobs_.empty() ? kIdleMs : kActiveMs;
  for (const control::JobView& view : snapshot_.jobs) {
    const bool is_opening = view.job.state == control::kPreparing || (view.job.state == control::kJoining && !view.members.empty());
    const bool is_ring_opening = IsInRing(view.job) && !IsRingOpen(view);
    if (is_opening || is_ring_opening || (view.job.mismatch_ms != 0 && !HasEnded(view.job))) wait = kPendingMs;
  }
  return wait;
}

Result<void> Daemon::Run() {
  ::sd_notifyf(0, "READY=1\nSTATUS=host %s, %zu interfaces", config_.host.c_str(), config_.ifaces.size());
  spdlog::info("mlnetd {} is ready: host {}, socket {}", MLNET_VERSION, config_.host, config_.socket);
  std::array<epoll_event, 8> events;
  for (;;) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), WaitMs());
    if (n < 0 && errno != EINTR) return tl::make_unexpected(ErrnoError("epoll_wait", errno));
    signalfd_siginfo signal;
    if (::read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
      spdlog::info("stopping on signal {}", signal.ssi_signo);
      leaves_jobs_ = signal.ssi_signo == SIGTERM && LeaveJobs();
      break;
    }
    server_->Dispatch(*this);
    EndDeadSessions();
    events_->Dispatch();
    Pass();
  }
  if (!leaves_jobs_) Stop();
  return {};
}

// A process that has exited is lost even where a child that it forked still holds the connection.
void Daemon::EndDeadSessions() {
  std::vector<rpc::PeerId> dead;
  for (const auto& [peer, session] : sessions_) {
    pollfd p{session.process.get(), POLLIN, 0};
    if (session.process && ::poll(&p, 1, 0) == 1) dead.push_back(peer);
  }
  if (dead.empty()) return;
  server_->Dispatch(*this);  // its last words may be a leave
  for (const rpc::PeerId peer : dead) EndSession(peer, /*orderly=*/false);
}

// SIGTERM may be a restart's: what is ready goes on without a daemon, as after a crash, and the next one takes over. False:
// nothing is.
bool Daemon::LeaveJobs() {
  Refresh();
  RemoveGone();
  const auto num_ready = std::count_if(snapshot_.jobs.begin(), snapshot_.jobs.end(),
                                       [&](const auto& v) { return v.job.state == control::kReady && NeedsHost(v.job, config_.host); });
  if (num_ready == 0) return false;
  ::sd_notify(0, "STOPPING=1");
  spdlog::info("{} jobs go on without it; the next mlnetd takes over, mlnetd --clean ends them", num_ready);
  const Error stopping = StoppingError();
  for (const auto& [peer, join] : waiting_) server_->ReplyError(peer, join.request_id, stopping);
  for (const control::JobView& view : snapshot_.jobs) {
    if (view.job.state == control::kPreparing && Involves(view.job.plan, config_.host)) FailJob(view, stopping, {});
  }
  Refresh();
  RemoveGone();
  ServeSessions();
  std::vector<rpc::PeerId> joining;
  for (const auto& [peer, session] : sessions_) {
    if (session.request_id != 0) joining.push_back(peer);
  }
  for (const rpc::PeerId peer : joining) EndSession(peer, /*orderly=*/true);
  Beat();
  Flush();
  server_.reset();
  return true;
}

Error Daemon::StoppingError() const {
  return Error{ErrorCode::kUnavailable, "mlnetd on host " + config_.host + " is stopping", "start it again, then the job"};
}

void Daemon::Stop() {
  ::sd_notify(0, "STOPPING=1");
  const Error stopping = StoppingError();
  for (const control::JobView& view : snapshot_.jobs) {
    if (IsActive(view.job) && NeedsHost(view.job, config_.host)) LoseHost(view, config_.host, stopping);
  }
  for (const auto& [peer, join] : waiting_) server_->ReplyError(peer, join.request_id, stopping);
  Refresh();
  ServeSessions();
  while (!sessions_.empty()) EndSession(sessions_.begin()->first, /*orderly=*/true);
  while (!jobs_.all().empty()) Uninstall(std::string(jobs_.all().begin()->first));  // the map's own ends on the way
  Flush();
  control::HostRecord gone = published_;
  gone.running = false;
  for (control::IfaceRecord& iface : gone.ifaces) iface.attached = false;
  if (auto ok = store_->SaveHost(gone); !ok) spdlog::warn("{}", ok.error().ToString());
  qos_.ClearAll();
  pins_.Remove(ifaces_.KeepsLinks());
}

}  // namespace mlnet::daemon
